/*
 * Cables with a rate between the ports of a hub
 *
 * Without these, a hub passes a frame on at once. With -icount percpu=on each
 * -netdev hubport has one, of no rate if none is given: else a frame would be in
 * the memory of a receiver whose clock has not reached the time. With them, in
 * the time of QEMU_CLOCK_VIRTUAL:
 *
 *  card -> [host bus] -> transmit FIFO -> cable ==> switch ==> queue of the
 *  port -> cable -> receive FIFO -> [host bus] -> card
 *
 * - A cable carries @rate bits per second in each direction. A frame occupies
 *   it for its own bytes (60 at least), 4 of checksum, 8 of preamble and 12 of
 *   gap (IEEE 802.3, 3.1.1 and 4.4.2). It has arrived with its last bit: the
 *   gap is not waited for.
 * - Without a switch, frames for the same card line up, but nothing is added
 *   where no two meet: between two cards this is one cable, of @delay ns.
 * - A switch (@queue is given) stores a frame before it forwards it @latency
 *   ns later. Frames that wait for a port occupy @queue bytes at most. One more
 *   is dropped. Each card has a cable of @delay ns to the switch.
 * - Like a switch, it learns on which port an address is, and sends a frame for
 *   an unknown one to all.
 * - Cards with the same @bus take turns, frame by frame, in both directions:
 *   @bus-rate bytes per second, and 32 bytes of descriptors for each frame.
 *   What arrives while the receive FIFO is full is dropped.
 * - A card reads its next packet when the transmit FIFO has room: tx_busy and
 *   tx_ready in net.h. It may exceed the FIFO by a packet, before segmentation.
 *
 * Frames on their way are not part of a saved machine.
 *
 * Copyright (c) 2026 The Seatrial developers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-net.h"
#include "qemu/iov.h"
#include "qemu/timer.h"
#include "qemu/units.h"
#include "net/eth.h"
#include "net/hub.h"
#include "system/cpu-timers.h"
#include "hub-wire.h"

#define SHORTEST 60
#define CHECKSUM 4
#define PREAMBLE 8
#define GAP 12
#define DESCRIPTORS 32
/* Packet buffers of Intel's 82576, at their defaults (its datasheet, 1.6). */
#define TRANSMIT_FIFO (40 * KiB)
#define RECEIVE_FIFO (64 * KiB)
/* Bound of what waits for a card without a switch. */
#define UNLIMITED (16 * MiB)

typedef struct Frame {
    QSIMPLEQ_ENTRY(Frame) next;
    int64_t start; /* when its first bit is on the line */
    int64_t due;   /* when it is at the line's other end */
    size_t size;
    uint8_t data[];
} Frame;

typedef QSIMPLEQ_HEAD(Frames, Frame) Frames;

/* One direction of a cable */
typedef struct Line {
    Frames frames;     /* which have not arrived, the first first */
    Frame *waiting;    /* the first of them that has not begun */
    uint64_t queued;   /* bytes that have not begun */
    int64_t free_from; /* when the next one may begin */
    QEMUTimer timer;   /* the first arrives */
} Line;

typedef struct HubBus {
    QTAILQ_ENTRY(HubBus) next;
    char *id;
    uint64_t rate;
    GPtrArray *wires;
    unsigned turn;    /* 2 * index of the last wire, + 1 if its card received */
    Frame *frame;     /* that is being carried */
    HubWire *carried; /* its wire */
    bool receives;    /* to the wire's card, not from it */
    int64_t free_from;
    QEMUTimer timer;
} HubBus;

struct HubWire {
    QTAILQ_ENTRY(HubWire) next;
    NetClientState *port;
    int hub;
    uint64_t rate; /* bits per second; 0: no limit */
    int64_t delay, latency;
    bool has_switch;
    uint64_t depth;
    Line up, down;
    QEMUTimer room; /* the transmit FIFO has room again */
    HubBus *bus;
    Frames to_send, arrived; /* which wait for the bus */
    uint64_t arrived_bytes;
    GHashTable *stations; /* keys: addresses of the cards behind this port */
    uint64_t sent, received, dropped, missed, peak;
};

static QTAILQ_HEAD(, HubWire) wires = QTAILQ_HEAD_INITIALIZER(wires);
static QTAILQ_HEAD(, HubBus) buses = QTAILQ_HEAD_INITIALIZER(buses);

static void bus_start(HubBus *bus, int64_t now);

static int64_t now_ns(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

/* ns that bytes take on a cable */
static int64_t line_time(HubWire *wire, size_t bytes)
{
    uint64_t bits = bytes * 8;

    return wire->rate ? (bits * NANOSECONDS_PER_SECOND + wire->rate / 2) /
                            wire->rate
                      : 0;
}

/* from the first bit of a frame to its last */
static int64_t frame_time(HubWire *wire, Frame *frame)
{
    return line_time(wire, PREAMBLE + MAX(frame->size, SHORTEST) + CHECKSUM);
}

static void line_add(HubWire *wire, Line *line, Frame *frame, int64_t now)
{
    frame->start = MAX(now, line->free_from);
    line->free_from =
        frame->start + frame_time(wire, frame) + line_time(wire, GAP);
    QSIMPLEQ_INSERT_TAIL(&line->frames, frame, next);
}

static void line_wait(Line *line)
{
    Frame *first = QSIMPLEQ_FIRST(&line->frames);

    if (first) {
        timer_mod(&line->timer, first->due);
    }
}

/* The first frame that has arrived, or NULL */
static Frame *line_take(Line *line, int64_t now)
{
    Frame *first = QSIMPLEQ_FIRST(&line->frames);

    if (!first || first->due > now) {
        return NULL;
    }
    QSIMPLEQ_REMOVE_HEAD(&line->frames, next);
    return first;
}

/* Count what has begun out of the queue. */
static void line_settle(Line *line, int64_t now)
{
    while (line->waiting && line->waiting->start <= now) {
        line->queued -= line->waiting->size;
        line->waiting = QSIMPLEQ_NEXT(line->waiting, next);
    }
}

static int64_t fifo_has_room_from(HubWire *wire)
{
    return wire->up.free_from - line_time(wire, TRANSMIT_FIFO);
}

static void transmit(HubWire *wire, Frame *frame, int64_t now)
{
    bool is_first = QSIMPLEQ_EMPTY(&wire->up.frames);

    line_add(wire, &wire->up, frame, now);
    frame->due = frame->start + wire->delay;
    if (wire->has_switch) {
        frame->due += frame_time(wire, frame) + wire->latency;
    }
    if (is_first) {
        line_wait(&wire->up);
    }
}

/* The card may send more. */
static void ready(HubWire *wire)
{
    NetClientState *port = wire->port;

    port->tx_busy = false;
    qemu_flush_queued_packets(port);
    if (!port->tx_busy && port->peer && port->peer->info->tx_ready) {
        port->peer->info->tx_ready(port->peer);
    }
}

static void room_timer(void *opaque)
{
    HubWire *wire = opaque;

    if (wire->bus) {
        bus_start(wire->bus, now_ns());
    } else {
        ready(wire);
    }
}

static void hand_over(HubWire *wire, Frame *frame)
{
    wire->received++;
    qemu_send_packet(wire->port, frame->data, frame->size);
    g_free(frame);
}

static void receive(HubWire *wire, Frame *frame)
{
    NetClientState *card = wire->port->peer;

    if (!wire->bus) {
        hand_over(wire, frame);
    } else if (wire->arrived_bytes + frame->size > RECEIVE_FIFO) {
        wire->missed++;
        if (card && card->info->rx_missed) {
            card->info->rx_missed(card);
        }
        g_free(frame);
    } else {
        wire->arrived_bytes += frame->size;
        QSIMPLEQ_INSERT_TAIL(&wire->arrived, frame, next);
        bus_start(wire->bus, now_ns());
    }
}

static void down_timer(void *opaque)
{
    HubWire *wire = opaque;
    int64_t now = now_ns();
    Frame *frame;

    line_settle(&wire->down, now);
    while ((frame = line_take(&wire->down, now))) {
        receive(wire, frame);
    }
    line_wait(&wire->down);
}

/* A frame that may leave the switch on a port */
static void enqueue(HubWire *wire, Frame *frame, int64_t now)
{
    Line *line = &wire->down;
    bool waits = line->free_from > now;

    line_settle(line, now);
    if (waits && line->queued + frame->size > wire->depth) {
        wire->dropped++;
        g_free(frame);
        return;
    }
    line_add(wire, line, frame, now);
    frame->due = frame->start + frame_time(wire, frame) +
                 (wire->has_switch ? wire->delay : 0);
    if (waits) {
        line->waiting = line->waiting ?: frame;
        line->queued += frame->size;
        wire->peak = MAX(wire->peak, line->queued);
    }
    if (QSIMPLEQ_FIRST(&line->frames) == frame) {
        line_wait(line);
    }
}

static uint64_t address_of(const uint8_t *data)
{
    return (uint32_t)ldl_be_p(data) | (uint64_t)lduw_be_p(data + 4) << 32;
}

/* Learn where the sender is. Returns the receiver's port; NULL: send to all. */
static HubWire *look_up(HubWire *source, Frame *frame)
{
    uint64_t sender = address_of(frame->data + ETH_ALEN);
    uint64_t receiver = address_of(frame->data);
    bool is_new = !g_hash_table_contains(source->stations, &sender);
    HubWire *wire, *match = NULL;

    QTAILQ_FOREACH(wire, &wires, next) {
        if (wire->hub != source->hub) {
            continue;
        }
        if (is_new) {
            g_hash_table_remove(wire->stations, &sender);
        }
        if (g_hash_table_contains(wire->stations, &receiver)) {
            match = wire;
        }
    }
    if (is_new) {
        g_hash_table_add(source->stations, g_memdup2(&sender, sizeof(sender)));
    }
    return match;
}

static void forward(HubWire *source, Frame *frame, int64_t now)
{
    HubWire *wire, *to;

    if (frame->size < ETH_HLEN) {
        g_free(frame);
        return;
    }
    to = look_up(source, frame);
    if (to && to != source) {
        enqueue(to, frame, now);
        return;
    }
    QTAILQ_FOREACH(wire, &wires, next) {
        if (!to && wire != source && wire->hub == source->hub) {
            enqueue(wire, g_memdup2(frame, sizeof(*frame) + frame->size), now);
        }
    }
    g_free(frame);
}

static void up_timer(void *opaque)
{
    HubWire *wire = opaque;
    int64_t now = now_ns();
    Frame *frame;

    while ((frame = line_take(&wire->up, now))) {
        forward(wire, frame, frame->due);
    }
    line_wait(&wire->up);
}

/* Carry the next frame, of whichever card's turn it is. */
static void bus_start(HubBus *bus, int64_t now)
{
    unsigned slots = 2 * bus->wires->len;
    uint64_t bytes;

    for (unsigned i = 1; i <= slots && !bus->frame; i++) {
        unsigned slot = (bus->turn + i) % slots;
        HubWire *wire = g_ptr_array_index(bus->wires, slot / 2);
        Frames *frames = slot % 2 ? &wire->arrived : &wire->to_send;

        if (QSIMPLEQ_EMPTY(frames)) {
            continue;
        }
        if (frames == &wire->to_send && fifo_has_room_from(wire) > now) {
            timer_mod(&wire->room, fifo_has_room_from(wire));
            continue;
        }
        bus->turn = slot;
        bus->carried = wire;
        bus->receives = slot % 2;
        bus->frame = QSIMPLEQ_FIRST(frames);
        QSIMPLEQ_REMOVE_HEAD(frames, next);
        bytes = bus->frame->size + DESCRIPTORS;
        bus->free_from = MAX(now, bus->free_from) +
                         bytes * NANOSECONDS_PER_SECOND / bus->rate;
        timer_mod(&bus->timer, bus->free_from);
    }
}

static void bus_timer(void *opaque)
{
    HubBus *bus = opaque;
    HubWire *wire = bus->carried;
    Frame *frame = bus->frame;
    int64_t now = bus->free_from;

    bus->frame = NULL;
    if (bus->receives) {
        wire->arrived_bytes -= frame->size;
        hand_over(wire, frame);
    } else {
        transmit(wire, frame, now);
        ready(wire);
    }
    bus_start(bus, now);
}

ssize_t hub_wire_send(HubWire *wire, const struct iovec *iov, int iovcnt)
{
    size_t size = iov_size(iov, iovcnt);
    int64_t now = now_ns();
    Frame *frame;

    if (wire->port->tx_busy) {
        return 0;
    }
    wire->sent++;
    frame = g_malloc(sizeof(*frame) + size);
    frame->size = size;
    iov_to_buf(iov, iovcnt, 0, frame->data, size);
    if (wire->bus) {
        wire->port->tx_busy = true; /* until the bus has carried it */
        QSIMPLEQ_INSERT_TAIL(&wire->to_send, frame, next);
        bus_start(wire->bus, now);
        return size;
    }
    transmit(wire, frame, now);
    if (fifo_has_room_from(wire) > now) {
        wire->port->tx_busy = true;
        timer_mod(&wire->room, fifo_has_room_from(wire));
    }
    return size;
}

bool hub_wire_is_wanted(const NetdevHubPortOptions *options)
{
    return icount_percpu_enabled() || options->has_rate || options->bus ||
           options->has_queue || options->has_delay || options->has_latency ||
           options->has_bus_rate;
}

static HubBus *bus_get(const char *id, uint64_t rate, Error **errp)
{
    HubBus *bus;

    QTAILQ_FOREACH(bus, &buses, next) {
        if (!strcmp(bus->id, id)) {
            break;
        }
    }
    if (!bus) {
        bus = g_new0(HubBus, 1);
        bus->id = g_strdup(id);
        bus->rate = rate;
        bus->wires = g_ptr_array_new();
        timer_init_ns(&bus->timer, QEMU_CLOCK_VIRTUAL, bus_timer, bus);
        QTAILQ_INSERT_TAIL(&buses, bus, next);
    } else if (bus->rate != rate) {
        error_setg(errp, "bus '%s' has another bus-rate on another port", id);
        return NULL;
    }
    return bus;
}

static void line_init(Line *line, QEMUTimerCB *callback, HubWire *wire)
{
    QSIMPLEQ_INIT(&line->frames);
    timer_init_ns(&line->timer, QEMU_CLOCK_VIRTUAL, callback, wire);
}

HubWire *hub_wire_new(NetClientState *port, const NetdevHubPortOptions *options,
                      Error **errp)
{
    HubWire *wire;
    HubBus *bus = NULL;

    if (options->has_rate && !options->rate) {
        error_setg(errp, "rate is a number of bits per second above 0");
        return NULL;
    }
    if (!options->has_rate && (options->has_queue || options->has_delay)) {
        error_setg(errp, "queue and delay need a rate");
        return NULL;
    }
    if (options->has_latency && !options->has_queue) {
        error_setg(errp, "latency is of a switch, which needs a queue");
        return NULL;
    }
    if (!options->bus != !(options->has_bus_rate && options->bus_rate)) {
        error_setg(errp, "bus and bus-rate, above 0, need each other");
        return NULL;
    }
    if (options->bus) {
        bus = bus_get(options->bus, options->bus_rate, errp);
        if (!bus) {
            return NULL;
        }
    }

    wire = g_new0(HubWire, 1);
    wire->port = port;
    wire->hub = options->hubid;
    wire->rate = options->rate;
    wire->delay = options->delay;
    wire->latency = options->latency;
    wire->has_switch = options->has_queue;
    wire->depth = options->has_queue ? options->queue : UNLIMITED;
    wire->stations = g_hash_table_new_full(g_int64_hash, g_int64_equal, g_free,
                                           NULL);
    line_init(&wire->up, up_timer, wire);
    line_init(&wire->down, down_timer, wire);
    timer_init_ns(&wire->room, QEMU_CLOCK_VIRTUAL, room_timer, wire);
    QSIMPLEQ_INIT(&wire->to_send);
    QSIMPLEQ_INIT(&wire->arrived);
    wire->bus = bus;
    if (bus) {
        g_ptr_array_add(bus->wires, wire);
    }
    QTAILQ_INSERT_TAIL(&wires, wire, next);
    return wire;
}

static void free_frames(Frames *frames)
{
    Frame *frame, *next;

    QSIMPLEQ_FOREACH_SAFE(frame, frames, next, next) {
        g_free(frame);
    }
}

static void bus_leave(HubBus *bus, HubWire *wire)
{
    g_ptr_array_remove(bus->wires, wire);
    if (bus->frame && bus->carried == wire) {
        timer_del(&bus->timer);
        g_clear_pointer(&bus->frame, g_free);
        bus_start(bus, now_ns());
    }
    if (bus->wires->len) {
        return;
    }
    QTAILQ_REMOVE(&buses, bus, next);
    g_ptr_array_free(bus->wires, true);
    g_free(bus->id);
    g_free(bus);
}

void hub_wire_free(HubWire *wire)
{
    QTAILQ_REMOVE(&wires, wire, next);
    if (wire->bus) {
        bus_leave(wire->bus, wire);
    }
    timer_del(&wire->up.timer);
    timer_del(&wire->down.timer);
    timer_del(&wire->room);
    free_frames(&wire->up.frames);
    free_frames(&wire->down.frames);
    free_frames(&wire->to_send);
    free_frames(&wire->arrived);
    g_hash_table_destroy(wire->stations);
    g_free(wire);
}

HubPortCountersList *qmp_x_query_hub_ports(Error **errp)
{
    HubPortCountersList *list = NULL, **tail = &list;
    HubWire *wire;

    QTAILQ_FOREACH(wire, &wires, next) {
        HubPortCounters *counters = g_new0(HubPortCounters, 1);

        counters->id = g_strdup(wire->port->name);
        counters->sent = wire->sent;
        counters->received = wire->received;
        counters->dropped = wire->dropped;
        counters->missed = wire->missed;
        counters->peak = wire->peak;
        QAPI_LIST_APPEND(tail, counters);
    }
    return list;
}
