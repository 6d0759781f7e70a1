/* fits.c - will a LoRA job on this model fit this GPU?
 *     cc fits.c -o fits $(pkg-config --cflags --libs plimsoll)
 *     ./fits Qwen/Qwen2.5-7B-Instruct "RTX 4090" */
#include <plimsoll.h>
#include <stdio.h>

int main(int argc, char *argv[]) {
    char gpu[128], line[160];
    const char *settings[] = {"gradient_checkpointing=full", gpu, NULL};
    struct pl_vram_error error;
    if (argc != 3) return 2;
    snprintf(gpu, sizeof gpu, "gpu=%s", argv[2]);

    struct pl_vram_estimate *e = pl_estimate_vram(argv[1], "lora", 16, 2, 2048, settings, &error);
    if (!e) {
        fprintf(stderr, "%s: %s\n%s\n", error.code, error.message, error.hint);
        return error.exit_status;
    }
    pl_estimate_summary(e, line, sizeof line);
    printf("%s\n", line);
    for (size_t i = 0; i < e->n_ledger; i++)
        printf("  %-14s %14llu\n", e->ledger[i].name, (unsigned long long)e->ledger[i].bytes);
    printf("%s: %s; largest batch: %llu\n", e->budget_source, e->verdict,
           (unsigned long long)e->recommended_batch_size);
    printf("16 GB that can be had would %sdo\n", pl_estimate_fits_on_card(e, 16) ? "" : "not ");
    int status = e->fits ? 0 : 3;
    pl_estimate_free(e);
    return status;
}
