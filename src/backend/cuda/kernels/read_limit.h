/* How launch_read_limit reads, for the kernel and its test (C and CUDA). */
#ifndef CUDA_READ_LIMIT_H
#define CUDA_READ_LIMIT_H

/* Blocks for each multiprocessor, threads of a block, loads of 16 bytes that a thread has in
 * flight. A thread that reads the mark and otherwise zeros writes it to `out`. */
enum { READ_BLOCKS = 16, READ_THREADS = 512, READ_IN_FLIGHT = 8, READ_MARK = 0x12345678 };

#endif
