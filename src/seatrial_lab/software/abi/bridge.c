/* libmpi.so.12 over Open MPI: runs a program built for the MPICH ABI under Open MPI.
 *
 * For: IMB-MPI1, which comes as a binary only. What it is not: a whole MPI. It carries the
 * functions of FUNCTIONS below; every other MPI_* name that MPICH exports ends the program
 * with its name (unsupported.c, generated when the bridge is built).
 *
 * How the two libraries with the same names live in one process: the program finds MPI_* in
 * this library, because it is its libmpi.so.12. Open MPI's libmpi.so.40 is opened by name with
 * RTLD_DEEPBIND, so its own uses of MPI_* and PMPI_* stay inside it, and RTLD_GLOBAL, because
 * its plug-ins are not linked with it. The bridge calls PMPI_* through pointers.
 * The approach is that of Mukautuva and Wi4MPI.
 *
 * Cost per call: a table look-up for each handle and an indirect call.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h> /* Open MPI's */
#include <stdlib.h>
#include <string.h>

#include "handles.h"
#include "mpich.h"
#include "tables.h"

#define FUNCTIONS(X) \
    X(Abort) X(Allgather) X(Allgatherv) X(Alloc_mem) X(Allreduce) X(Alltoall) X(Alltoallv) \
    X(Barrier) X(Bcast) X(Comm_compare) X(Comm_free) X(Comm_group) X(Comm_rank) X(Comm_size) \
    X(Comm_split) X(Error_class) X(Error_string) X(Finalize) X(Free_mem) X(Gather) X(Gatherv) \
    X(Get_count) X(Get_version) X(Group_translate_ranks) X(Init) X(Init_thread) X(Irecv) \
    X(Isend) X(Op_create) X(Recv) X(Reduce) X(Reduce_local) X(Reduce_scatter) \
    X(Reduce_scatter_block) X(Scatter) X(Scatterv) X(Send) X(Sendrecv) X(Type_commit) \
    X(Type_create_resized) X(Type_free) X(Type_get_extent) X(Type_size) X(Type_vector) \
    X(Wait) X(Waitall) X(Wtime)

#define X(name) __typeof__(&PMPI_##name) name;
static struct { FUNCTIONS(X) } ompi;
#undef X

static MPI_Comm comm_world, comm_self, comm_null;
static MPI_Group group_empty, group_null;
static MPI_Datatype type_null, types[256], pair_types[8];
static MPI_Op op_null, ops[16];
static MPI_Request request_null;
static MPI_Info info_null;
static struct table comms = EMPTY_TABLE, groups = EMPTY_TABLE, own_types = EMPTY_TABLE;
static struct table own_ops = EMPTY_TABLE, requests = EMPTY_TABLE;

/* ---- loading ---------------------------------------------------------------------------- */

static void *library;

static void *must_find(const char *prefix, const char *name)
{
    char symbol[96];
    strcat(strcpy(symbol, prefix), name);
    void *found = dlsym(library, symbol);
    if (!found)
        bridge_fatal("Open MPI has no %s", symbol);
    return found;
}

static void *may_find(const char *name, void *otherwise)
{
    char symbol[96] = "ompi_mpi_";
    void *found = dlsym(library, strcat(symbol, name));
    return found ? found : otherwise;
}

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

__attribute__((constructor)) static void load(void)
{
    library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL | RTLD_DEEPBIND);
    if (!library)
        bridge_fatal("cannot load Open MPI: %s", dlerror());
#define X(name) ompi.name = must_find("PMPI_", #name);
    FUNCTIONS(X)
#undef X
    comm_world = must_find("ompi_mpi_", "comm_world");
    comm_self = must_find("ompi_mpi_", "comm_self");
    comm_null = must_find("ompi_mpi_", "comm_null");
    group_empty = must_find("ompi_mpi_", "group_empty");
    group_null = must_find("ompi_mpi_", "group_null");
    type_null = must_find("ompi_mpi_", "datatype_null");
    op_null = must_find("ompi_mpi_", "op_null");
    request_null = must_find("ompi_", "request_null");
    info_null = must_find("ompi_mpi_", "info_null");
    for (int i = 0; i < COUNT(types); i++)
        types[i] = type_null;
    for (int i = 0; i < COUNT(pair_types); i++)
        pair_types[i] = type_null;
    for (int i = 0; i < COUNT(ops); i++)
        ops[i] = op_null;
    for (int i = 0; i < COUNT(TYPES); i++)
        types[TYPES[i].index] = may_find(TYPES[i].name, type_null);
    for (int i = 0; i < COUNT(PAIR_TYPES); i++)
        pair_types[PAIR_TYPES[i].index] = may_find(PAIR_TYPES[i].name, type_null);
    for (int i = 0; i < COUNT(OPS); i++)
        ops[OPS[i].index] = may_find(OPS[i].name, op_null);
}

/* ---- MPICH's values to Open MPI's. A handle nobody gave out becomes the null handle, -------
 * ---- which Open MPI refuses where the argument matters and ignores where it does not. ------ */

static void *own(struct table *table, int handle, int kind, void *null)
{
    void **at = (handle & M_KIND_MASK) == kind ? table_at(table, handle & ~M_KIND_MASK) : 0;
    return at ? *at : null;
}

static inline MPI_Comm to_comm(Mcomm comm)
{
    if (comm == M_COMM_WORLD)
        return comm_world;
    if (comm == M_COMM_SELF)
        return comm_self;
    return own(&comms, comm, M_COMM_OWN, comm_null);
}

static MPI_Group to_group(Mgroup group)
{
    return group == M_GROUP_EMPTY ? group_empty : own(&groups, group, M_GROUP_OWN, group_null);
}

static inline MPI_Datatype to_type(Mtype type)
{
    if ((type & M_KIND_MASK) == M_TYPE_BUILTIN)
        return types[type & 0xff];
    if ((type & M_KIND_MASK) == M_TYPE_PAIR && (type & 0xffffff) < COUNT(pair_types))
        return pair_types[type & 0xffffff];
    return own(&own_types, type, M_TYPE_OWN, type_null);
}

static inline MPI_Op to_op(Mop op)
{
    if ((op & M_KIND_MASK) == M_OP_BUILTIN && (op & 0xffffff) < COUNT(ops))
        return ops[op & 0xffffff];
    return own(&own_ops, op, M_OP_OWN, op_null);
}

static inline int to_rank(int rank)
{
    switch (rank) {
    case M_PROC_NULL: return MPI_PROC_NULL;
    case M_ANY_SOURCE: return MPI_ANY_SOURCE;
    case M_ROOT: return MPI_ROOT;
    default: return rank;
    }
}

static inline int to_tag(int tag)
{
    return tag == M_ANY_TAG ? MPI_ANY_TAG : tag;
}

/* Buffers are const on the one side and not on the other: the caller's type is restored. */
static inline void *to_buffer(const void *buffer)
{
    return buffer == M_IN_PLACE ? MPI_IN_PLACE : (void *)buffer;
}

/* ---- and back ----------------------------------------------------------------------------- */

static int from_error(int code)
{
    int class = code;
    if (code == MPI_SUCCESS)
        return 0;
    ompi.Error_class(code, &class);
    for (int i = 0; i < COUNT(ERROR_CLASSES); i++)
        if (ERROR_CLASSES[i][1] == class)
            return ERROR_CLASSES[i][0];
    return 15; /* MPI_ERR_OTHER */
}

static int from_rank(int rank)
{
    switch (rank) {
    case MPI_PROC_NULL: return M_PROC_NULL;
    case MPI_ANY_SOURCE: return M_ANY_SOURCE;
    case MPI_ROOT: return M_ROOT;
    default: return rank; /* MPI_UNDEFINED is -32766 in both */
    }
}

static void from_status(const MPI_Status *status, Mstatus *out)
{
    if (out == M_STATUS_IGNORE)
        return;
    unsigned long long count = status->_ucount;
    out->count_lo = (int)(unsigned)count;
    out->count_hi_and_cancelled = (int)(count >> 32) << 1 | !!status->_cancelled;
    out->source = from_rank(status->MPI_SOURCE);
    out->tag = status->MPI_TAG == MPI_ANY_TAG ? M_ANY_TAG : status->MPI_TAG;
    out->error = from_error(status->MPI_ERROR);
}

static Mtype from_type(MPI_Datatype type)
{
    int slot = table_find(&own_types, type);
    if (slot >= 0)
        return M_TYPE_OWN | slot;
    for (int i = 0; i < COUNT(TYPES); i++)
        if (types[TYPES[i].index] == type) {
            int size = 0;
            ompi.Type_size(type, &size);
            return M_TYPE_BUILTIN | size << 8 | TYPES[i].index;
        }
    for (int i = 0; i < COUNT(PAIR_TYPES); i++)
        if (pair_types[PAIR_TYPES[i].index] == type)
            return M_TYPE_PAIR | PAIR_TYPES[i].index;
    bridge_fatal("a reduction was given a datatype that the program never made");
}

/* ---- the functions. BRIDGE(Send) defines the symbol MPI_Send. ------------------------------ */

#define BRIDGE(result, name, arguments) \
    __attribute__((visibility("default"))) result bridge_##name arguments __asm__("MPI_" #name); \
    result bridge_##name arguments

BRIDGE(int, Init, (int *argc, char ***argv))
{
    return from_error(ompi.Init(argc, argv));
}

BRIDGE(int, Init_thread, (int *argc, char ***argv, int required, int *provided))
{
    /* The tables have no locks, so more than SERIALIZED is never promised. */
    int ask = required < MPI_THREAD_SERIALIZED ? required : MPI_THREAD_SERIALIZED;
    int code = ompi.Init_thread(argc, argv, ask, provided);
    if (*provided > MPI_THREAD_SERIALIZED)
        *provided = MPI_THREAD_SERIALIZED;
    return from_error(code);
}

BRIDGE(int, Finalize, (void))
{
    return from_error(ompi.Finalize());
}

BRIDGE(int, Abort, (Mcomm comm, int code))
{
    return from_error(ompi.Abort(to_comm(comm), code));
}

BRIDGE(double, Wtime, (void))
{
    return ompi.Wtime();
}

BRIDGE(int, Get_version, (int *version, int *subversion))
{
    return from_error(ompi.Get_version(version, subversion));
}

BRIDGE(int, Error_string, (int class, char *text, int *length))
{
    int code = class ? MPI_ERR_OTHER : MPI_SUCCESS;
    for (int i = 0; i < COUNT(ERROR_CLASSES); i++)
        if (ERROR_CLASSES[i][0] == class)
            code = ERROR_CLASSES[i][1];
    return from_error(ompi.Error_string(code, text, length));
}

BRIDGE(int, Alloc_mem, (MPI_Aint size, Minfo info, void *base))
{
    if (info != M_INFO_NULL)
        bridge_fatal("MPI_Alloc_mem with an MPI_Info is not supported");
    return from_error(ompi.Alloc_mem(size, info_null, base));
}

BRIDGE(int, Free_mem, (void *base))
{
    return from_error(ompi.Free_mem(base));
}

/* communicators and groups */

BRIDGE(int, Comm_size, (Mcomm comm, int *size))
{
    return from_error(ompi.Comm_size(to_comm(comm), size));
}

BRIDGE(int, Comm_rank, (Mcomm comm, int *rank))
{
    return from_error(ompi.Comm_rank(to_comm(comm), rank));
}

BRIDGE(int, Comm_compare, (Mcomm one, Mcomm other, int *result))
{
    return from_error(ompi.Comm_compare(to_comm(one), to_comm(other), result));
}

BRIDGE(int, Comm_split, (Mcomm comm, int color, int key, Mcomm *out))
{
    MPI_Comm made = comm_null;
    int code = ompi.Comm_split(to_comm(comm), color, key, &made);
    *out = made == comm_null ? M_COMM_NULL : (M_COMM_OWN | table_put(&comms, made));
    return from_error(code);
}

BRIDGE(int, Comm_free, (Mcomm *comm))
{
    MPI_Comm old = to_comm(*comm);
    int code = ompi.Comm_free(&old);
    if (code == MPI_SUCCESS) {
        table_drop(&comms, *comm & ~M_KIND_MASK);
        *comm = M_COMM_NULL;
    }
    return from_error(code);
}

BRIDGE(int, Comm_group, (Mcomm comm, Mgroup *group))
{
    MPI_Group made = group_null;
    int code = ompi.Comm_group(to_comm(comm), &made);
    *group = made == group_null ? M_GROUP_NULL : (M_GROUP_OWN | table_put(&groups, made));
    return from_error(code);
}

BRIDGE(int, Group_translate_ranks,
       (Mgroup group, int n, const int from[], Mgroup other, int to[]))
{
    int *ranks = malloc((n > 0 ? n : 1) * sizeof *ranks);
    if (!ranks)
        bridge_fatal("no memory for %d ranks", n);
    for (int i = 0; i < n; i++)
        ranks[i] = to_rank(from[i]);
    int code = ompi.Group_translate_ranks(to_group(group), n, ranks, to_group(other), to);
    for (int i = 0; i < n; i++)
        to[i] = from_rank(to[i]);
    free(ranks);
    return from_error(code);
}

/* point to point */

BRIDGE(int, Send, (const void *buffer, int count, Mtype type, int to, int tag, Mcomm comm))
{
    return from_error(ompi.Send(buffer, count, to_type(type), to_rank(to), tag, to_comm(comm)));
}

BRIDGE(int, Recv,
       (void *buffer, int count, Mtype type, int from, int tag, Mcomm comm, Mstatus *status))
{
    MPI_Status seen = {0};
    int code = ompi.Recv(buffer, count, to_type(type), to_rank(from), to_tag(tag),
                         to_comm(comm), &seen);
    from_status(&seen, status);
    return from_error(code);
}

BRIDGE(int, Sendrecv,
       (const void *out, int out_count, Mtype out_type, int to, int out_tag, void *in,
        int in_count, Mtype in_type, int from, int in_tag, Mcomm comm, Mstatus *status))
{
    MPI_Status seen = {0};
    int code = ompi.Sendrecv(out, out_count, to_type(out_type), to_rank(to), out_tag, in,
                             in_count, to_type(in_type), to_rank(from), to_tag(in_tag),
                             to_comm(comm), &seen);
    from_status(&seen, status);
    return from_error(code);
}

BRIDGE(int, Isend,
       (const void *buffer, int count, Mtype type, int to, int tag, Mcomm comm, Mrequest *out))
{
    MPI_Request made = request_null;
    int code = ompi.Isend(buffer, count, to_type(type), to_rank(to), tag, to_comm(comm), &made);
    *out = made == request_null ? M_REQUEST_NULL : (M_REQUEST_OWN | table_put(&requests, made));
    return from_error(code);
}

BRIDGE(int, Irecv,
       (void *buffer, int count, Mtype type, int from, int tag, Mcomm comm, Mrequest *out))
{
    MPI_Request made = request_null;
    int code = ompi.Irecv(buffer, count, to_type(type), to_rank(from), to_tag(tag),
                          to_comm(comm), &made);
    *out = made == request_null ? M_REQUEST_NULL : (M_REQUEST_OWN | table_put(&requests, made));
    return from_error(code);
}

static MPI_Request to_request(Mrequest request)
{
    if (request == M_REQUEST_NULL)
        return request_null;
    MPI_Request found = own(&requests, request, M_REQUEST_OWN, 0);
    if (!found)
        bridge_fatal("wait for request 0x%08x, which nobody started", (unsigned)request);
    return found;
}

/* After a wait: forget the ones that Open MPI set to null, keep those still under way. */
static void settle(Mrequest *request, MPI_Request after)
{
    if (*request != M_REQUEST_NULL && after == request_null) {
        table_drop(&requests, *request & ~M_KIND_MASK);
        *request = M_REQUEST_NULL;
    }
}

BRIDGE(int, Wait, (Mrequest *request, Mstatus *status))
{
    MPI_Status seen = {0};
    MPI_Request waiting = to_request(*request);
    int code = ompi.Wait(&waiting, &seen);
    settle(request, waiting);
    from_status(&seen, status);
    return from_error(code);
}

BRIDGE(int, Waitall, (int n, Mrequest list[], Mstatus out[]))
{
    enum { ON_STACK = 128 };
    MPI_Request few[ON_STACK], *waiting = few;
    MPI_Status few_seen[ON_STACK], *seen = few_seen;
    int want_status = out != M_STATUS_IGNORE;
    if (n > ON_STACK) {
        waiting = malloc(n * sizeof *waiting);
        seen = want_status ? malloc(n * sizeof *seen) : few_seen;
        if (!waiting || !seen)
            bridge_fatal("no memory to wait for %d requests", n);
    }
    for (int i = 0; i < n; i++)
        waiting[i] = to_request(list[i]);
    int code = ompi.Waitall(n, waiting, want_status ? seen : MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++) {
        settle(&list[i], waiting[i]);
        if (want_status)
            from_status(&seen[i], &out[i]);
    }
    if (n > ON_STACK) {
        free(waiting);
        if (want_status)
            free(seen);
    }
    return from_error(code);
}

BRIDGE(int, Get_count, (const Mstatus *status, Mtype type, int *count))
{
    MPI_Status seen = {0};
    seen._ucount = (unsigned)status->count_lo
                   | (unsigned long long)(status->count_hi_and_cancelled >> 1) << 32;
    seen._cancelled = status->count_hi_and_cancelled & 1;
    return from_error(ompi.Get_count(&seen, to_type(type), count));
}

/* datatypes */

static int keep_type(int code, MPI_Datatype made, Mtype *out)
{
    *out = code == MPI_SUCCESS ? (M_TYPE_OWN | table_put(&own_types, made)) : M_TYPE_NULL;
    return from_error(code);
}

BRIDGE(int, Type_vector, (int count, int length, int stride, Mtype old, Mtype *out))
{
    MPI_Datatype made = type_null;
    int code = ompi.Type_vector(count, length, stride, to_type(old), &made);
    return keep_type(code, made, out);
}

BRIDGE(int, Type_create_resized, (Mtype old, MPI_Aint lb, MPI_Aint extent, Mtype *out))
{
    MPI_Datatype made = type_null;
    int code = ompi.Type_create_resized(to_type(old), lb, extent, &made);
    return keep_type(code, made, out);
}

BRIDGE(int, Type_commit, (Mtype *type))
{
    MPI_Datatype committed = to_type(*type); /* Open MPI keeps the pointer */
    return from_error(ompi.Type_commit(&committed));
}

BRIDGE(int, Type_free, (Mtype *type))
{
    MPI_Datatype old = to_type(*type);
    int code = ompi.Type_free(&old);
    if (code == MPI_SUCCESS) {
        table_drop(&own_types, *type & ~M_KIND_MASK);
        *type = M_TYPE_NULL;
    }
    return from_error(code);
}

BRIDGE(int, Type_size, (Mtype type, int *size))
{
    return from_error(ompi.Type_size(to_type(type), size));
}

BRIDGE(int, Type_get_extent, (Mtype type, MPI_Aint *lb, MPI_Aint *extent))
{
    return from_error(ompi.Type_get_extent(to_type(type), lb, extent));
}

/* A program's own reduction is called with MPICH's handle of the type. Open MPI passes nothing
 * to tell the reductions apart, so each has its own small function that knows its number. */

typedef void Mfunction(void *in, void *inout, int *count, Mtype *type);
static Mfunction *reductions[8];

static void reduce_with(int n, void *in, void *inout, int *count, MPI_Datatype *type)
{
    Mtype handle = from_type(*type);
    reductions[n](in, inout, count, &handle);
}

#define REDUCTION(n) \
    static void reduction_##n(void *in, void *inout, int *count, MPI_Datatype *type) \
    { \
        reduce_with(n, in, inout, count, type); \
    }
REDUCTION(0) REDUCTION(1) REDUCTION(2) REDUCTION(3)
REDUCTION(4) REDUCTION(5) REDUCTION(6) REDUCTION(7)
static MPI_User_function *const trampolines[8] = {
    reduction_0, reduction_1, reduction_2, reduction_3,
    reduction_4, reduction_5, reduction_6, reduction_7,
};

BRIDGE(int, Op_create, (Mfunction *function, int commutes, Mop *out))
{
    int n = 0;
    while (n < COUNT(reductions) && reductions[n])
        n++;
    if (n == COUNT(reductions))
        bridge_fatal("more than %d reduction functions of the program's own", n);
    reductions[n] = function;
    MPI_Op made = op_null;
    int code = ompi.Op_create(trampolines[n], commutes, &made);
    *out = code == MPI_SUCCESS ? (M_OP_OWN | table_put(&own_ops, made)) : M_OP_NULL;
    return from_error(code);
}

/* collectives */

BRIDGE(int, Barrier, (Mcomm comm))
{
    return from_error(ompi.Barrier(to_comm(comm)));
}

BRIDGE(int, Bcast, (void *buffer, int count, Mtype type, int root, Mcomm comm))
{
    return from_error(ompi.Bcast(buffer, count, to_type(type), to_rank(root), to_comm(comm)));
}

BRIDGE(int, Gather,
       (const void *out, int out_count, Mtype out_type, void *in, int in_count, Mtype in_type,
        int root, Mcomm comm))
{
    return from_error(ompi.Gather(to_buffer(out), out_count, to_type(out_type), to_buffer(in),
                                  in_count, to_type(in_type), to_rank(root), to_comm(comm)));
}

BRIDGE(int, Gatherv,
       (const void *out, int out_count, Mtype out_type, void *in, const int counts[],
        const int at[], Mtype in_type, int root, Mcomm comm))
{
    return from_error(ompi.Gatherv(to_buffer(out), out_count, to_type(out_type), to_buffer(in),
                                   counts, at, to_type(in_type), to_rank(root), to_comm(comm)));
}

BRIDGE(int, Scatter,
       (const void *out, int out_count, Mtype out_type, void *in, int in_count, Mtype in_type,
        int root, Mcomm comm))
{
    return from_error(ompi.Scatter(to_buffer(out), out_count, to_type(out_type), to_buffer(in),
                                   in_count, to_type(in_type), to_rank(root), to_comm(comm)));
}

BRIDGE(int, Scatterv,
       (const void *out, const int counts[], const int at[], Mtype out_type, void *in,
        int in_count, Mtype in_type, int root, Mcomm comm))
{
    return from_error(ompi.Scatterv(to_buffer(out), counts, at, to_type(out_type), to_buffer(in),
                                    in_count, to_type(in_type), to_rank(root), to_comm(comm)));
}

BRIDGE(int, Allgather,
       (const void *out, int out_count, Mtype out_type, void *in, int in_count, Mtype in_type,
        Mcomm comm))
{
    return from_error(ompi.Allgather(to_buffer(out), out_count, to_type(out_type), to_buffer(in),
                                     in_count, to_type(in_type), to_comm(comm)));
}

BRIDGE(int, Allgatherv,
       (const void *out, int out_count, Mtype out_type, void *in, const int counts[],
        const int at[], Mtype in_type, Mcomm comm))
{
    return from_error(ompi.Allgatherv(to_buffer(out), out_count, to_type(out_type),
                                      to_buffer(in), counts, at, to_type(in_type),
                                      to_comm(comm)));
}

BRIDGE(int, Alltoall,
       (const void *out, int out_count, Mtype out_type, void *in, int in_count, Mtype in_type,
        Mcomm comm))
{
    return from_error(ompi.Alltoall(to_buffer(out), out_count, to_type(out_type), to_buffer(in),
                                    in_count, to_type(in_type), to_comm(comm)));
}

BRIDGE(int, Alltoallv,
       (const void *out, const int out_counts[], const int out_at[], Mtype out_type, void *in,
        const int in_counts[], const int in_at[], Mtype in_type, Mcomm comm))
{
    return from_error(ompi.Alltoallv(to_buffer(out), out_counts, out_at, to_type(out_type),
                                     to_buffer(in), in_counts, in_at, to_type(in_type),
                                     to_comm(comm)));
}

BRIDGE(int, Reduce,
       (const void *out, void *in, int count, Mtype type, Mop op, int root, Mcomm comm))
{
    return from_error(ompi.Reduce(to_buffer(out), to_buffer(in), count, to_type(type), to_op(op),
                                  to_rank(root), to_comm(comm)));
}

BRIDGE(int, Allreduce, (const void *out, void *in, int count, Mtype type, Mop op, Mcomm comm))
{
    return from_error(ompi.Allreduce(to_buffer(out), to_buffer(in), count, to_type(type),
                                     to_op(op), to_comm(comm)));
}

BRIDGE(int, Reduce_local, (const void *in, void *inout, int count, Mtype type, Mop op))
{
    return from_error(ompi.Reduce_local(in, inout, count, to_type(type), to_op(op)));
}

BRIDGE(int, Reduce_scatter,
       (const void *out, void *in, const int counts[], Mtype type, Mop op, Mcomm comm))
{
    return from_error(ompi.Reduce_scatter(to_buffer(out), to_buffer(in), counts, to_type(type),
                                          to_op(op), to_comm(comm)));
}

BRIDGE(int, Reduce_scatter_block,
       (const void *out, void *in, int count, Mtype type, Mop op, Mcomm comm))
{
    return from_error(ompi.Reduce_scatter_block(to_buffer(out), to_buffer(in), count,
                                                to_type(type), to_op(op), to_comm(comm)));
}
