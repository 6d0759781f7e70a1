/* plimsoll.c - main. */
#include "tools/plimsoll/cli.h"

int main(int argc, char *argv[]) {
    return pl_cli_main(argc, argv);
}
