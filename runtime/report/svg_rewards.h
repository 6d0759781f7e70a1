/* svg_rewards.h - the rewards of a run that learned from preferences, as panels below its loss.
 *
 * In: columns of figures.  Out: SVG.  Needs: svg_panel.h. Private to the room.
 * Use: height += pl_svg_rewards_height(c); ... pl_svg_rewards(c, top, out); */
#ifndef PL_RUNTIME_REPORT_SVG_REWARDS_H
#define PL_RUNTIME_REPORT_SVG_REWARDS_H

#include "runtime/report/report.h"

/* Returns the pixels that the panels take; 0: there are none. */
int pl_svg_rewards_height(const struct pl_loss_curves *c);
void pl_svg_rewards(const struct pl_loss_curves *c, int top, struct pl_text *out);

#endif
