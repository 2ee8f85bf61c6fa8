/* The part of the MPICH ABI that the bridge speaks, seen from the program's side.
 *
 * Values are those of mpi.h of MPICH 5.0.2 and are fixed by the MPICH ABI compatibility
 * initiative (libmpi.so.12). Names start with M so that Open MPI's mpi.h can be included
 * in the same file. A handle is an int: its top two bits say built-in (1), direct (2) or
 * indirect (3), the next four bits the kind of object.
 */
#ifndef SEATRIAL_MPICH_H
#define SEATRIAL_MPICH_H

typedef int Mcomm, Mgroup, Mtype, Mop, Mrequest, Minfo;

typedef struct {
    int count_lo;
    int count_hi_and_cancelled; /* bit 0: cancelled; the rest: count >> 32 */
    int source;
    int tag;
    int error;
} Mstatus;

enum {
    M_COMM_NULL = 0x04000000,
    M_GROUP_NULL = 0x08000000,
    M_TYPE_NULL = 0x0c000000,
    M_OP_NULL = 0x18000000,
    M_INFO_NULL = 0x1c000000,
    M_REQUEST_NULL = 0x2c000000,

    M_COMM_WORLD = 0x44000000,
    M_COMM_SELF = 0x44000001,
    M_GROUP_EMPTY = 0x48000000,
    M_TYPE_BUILTIN = 0x4c000000, /* | size in bytes << 8 | index */
    M_OP_BUILTIN = 0x58000000,   /* | index */

    M_TYPE_PAIR = (int)0x8c000000, /* | index: the value-and-location types */

    /* What the bridge hands out; MPICH's "indirect" kind, so a built-in is never hit. */
    M_COMM_OWN = (int)0xc4000000,
    M_GROUP_OWN = (int)0xc8000000,
    M_TYPE_OWN = (int)0xcc000000,
    M_OP_OWN = (int)0xd8000000,
    M_REQUEST_OWN = (int)0xec000000,
    M_KIND_MASK = (int)0xff000000,

    M_PROC_NULL = -1,
    M_ANY_SOURCE = -2,
    M_ROOT = -3,
    M_ANY_TAG = -1,
};

#define M_IN_PLACE ((void *)-1)
#define M_STATUS_IGNORE ((Mstatus *)1)

#endif
