/*
 * QEMU TCG vCPUs with a clock of their own (-icount percpu=on)
 *
 * Copyright (c) 2026 The Seatrial developers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef TCG_ACCEL_OPS_PERCPU_H
#define TCG_ACCEL_OPS_PERCPU_H

/*
 * Run the timers that are due and return the vCPU that runs next, with its
 * budget of instructions; NULL: the thread has to wait.  BQL held.
 */
CPUState *icount_percpu_next(int64_t *budget);

/* Begin and end a turn of a vCPU. */
void icount_percpu_begin(CPUState *cpu, int64_t budget);
void icount_percpu_end(CPUState *cpu);

void icount_percpu_handle_interrupt(CPUState *cpu, int mask);

/* Forget the held interrupts of a vCPU that is reset. */
void icount_percpu_drop_irqs(CPUState *cpu);

#endif /* TCG_ACCEL_OPS_PERCPU_H */
