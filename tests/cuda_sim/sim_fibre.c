/* sim_fibre.c - one stack per fibre, and the switch between two of them.
 *
 * A switch saves what the calling convention of the System V ABI for x86-64 makes the callee keep,
 * and swaps stack pointers; other machines use ucontext(3). Kernels do not change the floating
 * point control words, so these are left alone. AddressSanitizer is told of every switch, as
 * sanitizer/common_interface_defs.h asks. */
#include "tests/cuda_sim/sim.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
enum { STACK_BYTES = 512 << 10 }; /* instrumented frames are several times larger */
#else
enum { STACK_BYTES = 128 << 10 };
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct plsim_fibre {
    void *stack; /* lowest byte; below it lies a page that cannot be touched */
    size_t stack_bytes;
#if defined(__x86_64__)
    void *sp; /* while it does not run */
#else
    ucontext_t context;
#endif
    void *fake_stack; /* AddressSanitizer's, while it does not run */
};

static struct plsim_fibre host; /* the stack of whoever launched */
static struct plsim_fibre *running = &host;

/* First thing a fibre does, and last thing of every switch: we are on the new stack. */
static void arrive(struct plsim_fibre *me, struct plsim_fibre *from) {
#ifdef WITH_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(me->fake_stack, &bottom, &bytes);
    if (from == &host) {
        host.stack = (void *)(uintptr_t)bottom;
        host.stack_bytes = bytes;
    }
#endif
    (void)from;
    running = me;
}

static struct plsim_fibre *leaving; /* who made the switch under way */

static void enter(void) {
    struct plsim_fibre *me = running;
    arrive(me, leaving);
    plsim_fibre_main();
}

#if defined(__x86_64__)
/* void plsim_swap(void **save_sp, void *load_sp) */
void plsim_swap(void **save_sp, void *load_sp);
__asm__(".text\n"
        ".globl plsim_swap\n"
        ".type plsim_swap, @function\n"
        "plsim_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size plsim_swap, . - plsim_swap\n");

enum { SAVED_REGISTERS = 6 };

static void prepare(struct plsim_fibre *f) {
    void **top = (void **)(void *)((char *)f->stack + f->stack_bytes);
    top[-1] = NULL; /* return address of enter(); keeps its frame aligned to 16 */
    top[-2] = (void *)(uintptr_t)enter;
    f->sp = top - 2 - SAVED_REGISTERS;
}

static void swap(struct plsim_fibre *from, struct plsim_fibre *to) {
    plsim_swap(&from->sp, to->sp);
}
#else
static void prepare(struct plsim_fibre *f) {
    if (getcontext(&f->context) != 0) plsim_die("getcontext failed");
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = f->stack_bytes;
    f->context.uc_link = NULL;
    makecontext(&f->context, enter, 0);
}

static void swap(struct plsim_fibre *from, struct plsim_fibre *to) {
    if (swapcontext(&from->context, &to->context) != 0) plsim_die("swapcontext failed");
}
#endif

struct plsim_fibre *plsim_fibre_create(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct plsim_fibre *f = calloc(1, sizeof *f);
    char *memory = mmap(NULL, STACK_BYTES + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!f || memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        plsim_die("no memory for the stack of a thread");
    f->stack = memory + page;
    f->stack_bytes = STACK_BYTES;
    prepare(f);
    return f;
}

struct plsim_fibre *plsim_fibre_running(void) {
    return running;
}

bool plsim_fibre_holds(const void *p) {
    return (uintptr_t)p - (uintptr_t)running->stack < running->stack_bytes;
}

void plsim_fibre_switch(struct plsim_fibre *to) {
    struct plsim_fibre *me = running;
    if (!to) to = &host;
    leaving = me;
    running = to;
    plsim_counters.switches++;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(&me->fake_stack, to->stack, to->stack_bytes);
#endif
    swap(me, to);
    arrive(me, leaving);
}
