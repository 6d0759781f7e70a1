/* library.h - libraries that are loaded when they are needed, wherever they were installed.
 *
 * In: the name of a library.  Out: its handle of dlopen(), which the caller gives back.
 *   1  a name that begins with "nvidia/" is a file of NVIDIA's wheels: it is looked for in the
 *      Python environment whose bin/ holds this program
 *   2  any other name goes to dlopen() as it is
 * Use: void *nccl = pl_library_open("nvidia/nccl/lib/libnccl.so.2", RTLD_NOW | RTLD_LOCAL); */
#ifndef PLIMSOLL_RUNTIME_COMM_LIBRARY_H
#define PLIMSOLL_RUNTIME_COMM_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Opens a library. NULL: it is not there or cannot be loaded; dlerror() may say why. */
void *pl_library_open(const char *name, int flags);
/* Writes the path of the file `name` of a wheel, for a program in `folder`. False: there is
 * none. */
bool pl_library_in_wheel(const char *folder, const char *name, char *path, size_t size);

#endif
