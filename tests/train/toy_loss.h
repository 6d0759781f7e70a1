/* toy_loss.h - the row of a loss that no one else has: the square of the distance from a margin. */
#define PL_DPO_LOSSES_OF_A_TEST(LOSS) LOSS(TOY, "toy", toy, OF_SCORED)
#define PL_DPO_LOSS_FUNCTIONS_OF_A_TEST                                                            \
    static struct pair_loss dpo_toy(const struct pair *p) {                                        \
        const double *n = p->tokens, x = p->d[0] / n[0] - p->d[1] / n[1] - 1;                      \
        return (struct pair_loss){.loss = x * x, .by = {2 * x / n[0], -2 * x / n[1]}};             \
    }
