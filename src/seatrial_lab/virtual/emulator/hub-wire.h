/*
 * Cables with a rate between the ports of a hub
 *
 * Copyright (c) 2026 The Seatrial developers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef HUB_WIRE_H
#define HUB_WIRE_H

#include "net/net.h"
#include "qapi/qapi-types-net.h"

typedef struct HubWire HubWire;

/*
 * Whether the options of a port ask for a cable with a rate, or for a host bus,
 * or frames have to wait for the clock of their receiver (-icount percpu=on).
 */
bool hub_wire_is_wanted(const NetdevHubPortOptions *options);

/*
 * Give a port its cable. All ports of a hub need one. Returns NULL, with the
 * reason in @errp, if the options contradict each other.
 */
HubWire *hub_wire_new(NetClientState *port, const NetdevHubPortOptions *options,
                      Error **errp);
void hub_wire_free(HubWire *wire);

/* Send a frame of the card. Returns its size; 0: the cable has no room yet. */
ssize_t hub_wire_send(HubWire *wire, const struct iovec *iov, int iovcnt);

#endif /* HUB_WIRE_H */
