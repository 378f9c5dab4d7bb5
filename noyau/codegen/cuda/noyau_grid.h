/* A kernel of CUDA for a runtime in C: its table, whose `run` is not there, the blocks of its launches, and its code. */
#ifndef NOYAU_GRID
#define NOYAU_GRID
/* The threads of a block, the items that a block has side by side, the blocks of a cluster. */
typedef struct {
    int32_t threads, rows, blocks;
} noyau_block;

/* Machine code of an architecture (90 is sm_90), or its PTX, which the driver translates for newer ones. */
typedef struct {
    int32_t architecture, is_ptx;
    const char *content;
} noyau_code;

/* `extent` of the table is the items of a launch; a kernel of the code is called as the table, then _ and the launch;
   it takes the address of each buffer, then each size. */
typedef struct {
    noyau_kernel table;
    const noyau_block *blocks; /* of each launch */
    const noyau_code *codes;
    int32_t code_count;
} noyau_grid;
#endif
