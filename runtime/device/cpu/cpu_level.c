/* cpu_level.c - the instruction set of this process: the best that the machine has, or the one that
 * the environment names. */
#include "estimator/base/text.h"
#include "runtime/device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* True if the processor multiplies bf16 in tiles, the kernel saves their registers, and it lets
 * this process use them, for which it has to be asked (Linux, Documentation/arch/x86/xstate.rst).
 */
static bool has_amx(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, its component */
    const unsigned bf16 = 1u << 22, tiles = 1u << 24, saves = 1u << 27, both = 3u << 17;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & saves)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & bf16) == 0 || (d & tiles) == 0)
        return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (a & both) == both && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#elif defined(__x86_64__)
static bool has_amx(void) {
    return false;
}
#endif

static bool is_supported(const char *level) {
#if defined(__x86_64__)
    /* The features of each level that the compiler may use for these loops; a machine has all of a
     * level or is treated as the one below (x86-64 psABI, "Microarchitecture levels"). */
    __builtin_cpu_init();
    bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
              __builtin_cpu_supports("popcnt");
    bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    const char *number = level + sizeof "x86-64-v" - 1;
    const bool pairs = v4 && __builtin_cpu_supports("avx512bf16");
    if (strcmp(number, "4+amx") == 0) return pairs && has_amx();
    if (strcmp(number, "4+bf16") == 0) return pairs;
    return *number == '4' ? v4 : *number == '3' ? v3 : v2;
#else
    (void)level;
    return true;
#endif
}

/* True if the level is one for bf16 that is slower than the one it extends. Intel's processors
 * multiply pairs by VDPBF16PS at half the rate at which they multiply fp32. */
static bool is_slower(const struct pl_cpu_level *level) {
#if defined(__x86_64__)
    return strcmp(level->name, "x86-64-v4+bf16") == 0 && __builtin_cpu_is("intel");
#else
    (void)level;
    return false;
#endif
}

uint32_t pl_cpu_levels(struct pl_cpu_level *out, uint32_t cap) {
    static const struct pl_cpu_level rows[] = {
#define X(level, name, in_bf16) {name, 0, in_bf16},
        PL_CPU_LEVELS(X)
#undef X
    };
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows && n < cap; i++)
        if (is_supported(rows[i].name))
            out[n++] = (struct pl_cpu_level){rows[i].name, i, rows[i].in_bf16};
    return n;
}

static pl_err no_such_level(const char *wanted, const struct pl_cpu_level *levels, uint32_t n,
                            struct pl_diag *d) {
    struct pl_text names = {0};
    for (uint32_t i = 0; i < n; i++)
        pl_text_addf(&names, "%s%s", i ? ", " : "", levels[i].name);
    pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE,
                             "PLIMSOLL_CPU_LEVEL=%s: no kernels that this machine runs", wanted);
    pl_diag_hint(d, "it runs %s; without the variable, the first", pl_text_str(&names));
    pl_text_finish(&names);
    return err;
}

pl_err pl_cpu_level(bool in_bf16, struct pl_cpu_level *out, struct pl_diag *d) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    const uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    const char *wanted = getenv("PLIMSOLL_CPU_LEVEL");
    uint32_t i = 0;
    if (n == 0) {
        pl_err err =
            pl_diag_set(d, PL_ERR_NO_DEVICE, "the CPU device needs an x86-64-v2 processor");
        pl_diag_hint(d, "x86-64-v2 means SSE4.2, which every x86 machine since 2009 has");
        return err;
    }
    while (wanted && *wanted && i < n && strcmp(levels[i].name, wanted) != 0)
        i++;
    if (i == n) return no_such_level(wanted, levels, n, d);
    /* Every level that multiplies in bf16 stands above the one that it extends. */
    const bool is_named = wanted && *wanted;
    while (levels[i].in_bf16 && (!in_bf16 || (!is_named && is_slower(&levels[i]))))
        i++;
    *out = levels[i];
    return PL_ERR_OK;
}
