/* graph_count.h - how many graphs of a plan there are at one time; device.h has their books. */
#ifndef PL_RUNTIME_DEVICE_GRAPH_COUNT_H
#define PL_RUNTIME_DEVICE_GRAPH_COUNT_H

/* Micro-batches of samples of many lengths have some dozens of sizes after padding
 * (runtime/data/batch.h). */
#define PL_GRAPHS_MOST 64

#endif
