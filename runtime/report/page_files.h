/* page_files.h - the files of page/, which the build embeds (page/embed.sh); private to the room.
 *
 * Use: pl_text_add(out, pl_page_style_css); */
#ifndef PL_RUNTIME_REPORT_PAGE_FILES_H
#define PL_RUNTIME_REPORT_PAGE_FILES_H

extern const char pl_page_page_html[], pl_page_style_css[], pl_page_plot_js[], pl_page_curves_js[],
    pl_page_timeline_js[], pl_page_main_js[];

#endif
