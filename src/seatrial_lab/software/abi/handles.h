/* Tables from the bridge's int handles to Open MPI's pointers.
 *
 * Not thread safe: the bridge never grants more than MPI_THREAD_SERIALIZED.
 */
#ifndef SEATRIAL_HANDLES_H
#define SEATRIAL_HANDLES_H

struct table {
    void **item;
    int *next_free;
    int size;
    int first_free; /* -1: full */
};

#define EMPTY_TABLE {0, 0, 0, -1}

/* Store a pointer; returns its slot. Ends the program when memory runs out. */
int table_put(struct table *table, void *item);
/* The address of a slot's pointer, or 0 where no such slot was ever handed out. */
void **table_at(struct table *table, int slot);
void table_drop(struct table *table, int slot);
/* The slot that holds this pointer, or -1. */
int table_find(const struct table *table, const void *item);

/* Print "seatrial ABI bridge: ..." and end the program: never carry on with a wrong answer. */
void bridge_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
