#include "handles.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bridge_fatal(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("seatrial ABI bridge: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void grow(struct table *table)
{
    int old = table->size, size = old ? 2 * old : 256;
    table->item = realloc(table->item, size * sizeof *table->item);
    table->next_free = realloc(table->next_free, size * sizeof *table->next_free);
    if (!table->item || !table->next_free)
        bridge_fatal("no memory for %d handles", size);
    for (int slot = old; slot < size; slot++) {
        table->item[slot] = 0;
        table->next_free[slot] = slot + 1 < size ? slot + 1 : -1;
    }
    table->first_free = old;
    table->size = size;
}

int table_put(struct table *table, void *item)
{
    if (table->first_free < 0)
        grow(table);
    int slot = table->first_free;
    table->first_free = table->next_free[slot];
    table->item[slot] = item;
    return slot;
}

void **table_at(struct table *table, int slot)
{
    return slot >= 0 && slot < table->size && table->item[slot] ? &table->item[slot] : 0;
}

void table_drop(struct table *table, int slot)
{
    table->item[slot] = 0;
    table->next_free[slot] = table->first_free;
    table->first_free = slot;
}

int table_find(const struct table *table, const void *item)
{
    for (int slot = 0; slot < table->size; slot++)
        if (table->item[slot] == item)
            return slot;
    return -1;
}
