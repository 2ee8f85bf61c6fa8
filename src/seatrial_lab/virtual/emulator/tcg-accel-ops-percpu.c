/*
 * QEMU TCG vCPUs with a clock of their own (-icount percpu=on)
 *
 * One host thread runs all vCPUs in turn, as for -icount without this option.
 * But every vCPU counts its own instructions, so in virtual time they run in
 * parallel: QEMU_CLOCK_VIRTUAL is the time of the vCPU that reads it, and
 * elsewhere (timers, the main loop) the time that all running vCPUs have
 * reached.
 *
 * Rules:
 * - The vCPU that is furthest behind runs next, until it is a window ahead of
 *   the second, or until the next timer is due.
 * - A timer runs when all running vCPUs have reached its deadline.
 * - An idle vCPU has no time.  It continues at the time of what wakes it.
 * - A vectored interrupt to a vCPU that is behind the sending one is held: its
 *   APIC gets it when it has reached the sender's time.  A busy receiver may be
 *   ahead, so it may arrive late by a window.
 * - What the host sends has no time.  It wakes an idle vCPU at the latest time
 *   that is known, which leaves out the turn that runs: 50 us at most, of a vCPU
 *   that is alone.  To a busy vCPU it comes at once.
 * - When all are idle, the clock goes to the next deadline.
 * - While a device waits for the host (icount_hold), no vCPU runs and no time
 *   passes.
 *
 * A vCPU ends its turn at the end of a translation block, so it may overshoot
 * a limit by the length of one block.
 *
 * Copyright (c) 2026 The Seatrial developers
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/seqlock.h"
#include "system/cpu-timers.h"
#include "system/cpu-timers-internal.h"
#include "system/runstate.h"
#include "hw/core/cpu.h"

#include "tcg-accel-ops.h"
#include "tcg-accel-ops-percpu.h"

/* How long a vCPU runs on while all others are idle, in ns. */
#define ALONE_NS (50 * SCALE_US)
/*
 * With all vCPUs idle, the vCPU thread skips shorter waits itself.  For longer
 * ones, and now and then, it lets the main loop do it, which looks for events
 * of the host each time.
 */
#define DIRECT_NS (200 * SCALE_US)
#define DIRECT_SKIPS 64

int64_t icount_window;

struct IcountHeldIrq {
    IcountHeldIrq *next; /* by time */
    int64_t time;
    IcountDeliverIrq *deliver;
    void *opaque;
    int vector, trigger_mode;
};

static int held;
static bool turn_ended; /* a timer or an interrupt has made the limits invalid */

/* The time that all running vCPUs have reached. */
static int64_t floor_time(void)
{
    return qatomic_read_i64(&timers_state.qemu_icount);
}

static void raise_floor(int64_t time)
{
    if (time > floor_time()) {
        seqlock_write_lock(&timers_state.vm_clock_seqlock,
                           &timers_state.vm_clock_lock);
        qatomic_set_i64(&timers_state.qemu_icount, time);
        seqlock_write_unlock(&timers_state.vm_clock_seqlock,
                             &timers_state.vm_clock_lock);
    }
}

static int64_t latest_time(void)
{
    int64_t time = floor_time();
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        time = MAX(time, cpu->icount_time);
    }
    return time;
}

static bool is_waiting(CPUState *cpu)
{
    return cpu->halted && !cpu_has_work(cpu);
}

static IcountHeldIrq *take_first_held(CPUState *cpu)
{
    IcountHeldIrq *first = cpu->icount_held_irqs;

    cpu->icount_held_irqs = first->next;
    return first;
}

static void deliver_first_held(CPUState *cpu)
{
    g_autofree IcountHeldIrq *irq = take_first_held(cpu);

    irq->deliver(irq->opaque, irq->vector, irq->trigger_mode);
}

void icount_percpu_drop_irqs(CPUState *cpu)
{
    while (cpu->icount_held_irqs) {
        g_free(take_first_held(cpu));
    }
}

/*
 * Deliver the interrupts whose time has come; to a waiting vCPU the first one at
 * once, if no timer is due before.  Returns whether one is left.
 */
static bool deliver_held(CPUState *cpu, int64_t deadline)
{
    IcountHeldIrq *first;

    while ((first = cpu->icount_held_irqs)) {
        if (first->time > (is_waiting(cpu) ? deadline : cpu->icount_time)) {
            return true;
        }
        cpu->icount_time = MAX(cpu->icount_time, first->time);
        deliver_first_held(cpu);
    }
    return false;
}

/* Deadline of the first timer; INT64_MAX: there is none */
static int64_t next_deadline(void)
{
    int64_t delta = timerlist_deadline_ns(main_loop_tlg.tl[QEMU_CLOCK_VIRTUAL]);

    return delta < 0 ? INT64_MAX : floor_time() + delta;
}

static void run_timers(int64_t deadline)
{
    raise_floor(deadline);
    timerlist_run_timers(main_loop_tlg.tl[QEMU_CLOCK_VIRTUAL]);
}

CPUState *icount_percpu_next(int64_t *budget)
{
    int skips = 0;

    assert(bql_locked());
    turn_ended = false;
    for (;;) {
        CPUState *cpu, *next = NULL;
        int64_t deadline, limit, second = INT64_MAX;
        bool irqs_left = false;

        if (held || !runstate_is_running()) {
            return NULL;
        }
        deadline = next_deadline();
        CPU_FOREACH(cpu) {
            if (!cpu_can_run(cpu)) {
                continue;
            }
            irqs_left |= deliver_held(cpu, deadline);
            if (is_waiting(cpu)) {
                continue;
            }
            cpu->icount_time = MAX(cpu->icount_time, floor_time());
            if (!next || cpu->icount_time < next->icount_time) {
                second = next ? next->icount_time : INT64_MAX;
                next = cpu;
            } else {
                second = MIN(second, cpu->icount_time);
            }
        }
        if (!next) {
            if (!irqs_left && (deadline == INT64_MAX ||
                               deadline > floor_time() + DIRECT_NS ||
                               ++skips > DIRECT_SKIPS)) {
                return NULL;
            }
            run_timers(deadline);
            continue;
        }
        if (deadline <= next->icount_time) {
            run_timers(deadline);
            continue;
        }
        raise_floor(next->icount_time);
        limit = second == INT64_MAX ? next->icount_time + ALONE_NS
                                    : second + icount_window;
        limit = MIN(limit, deadline);
        if (next->icount_held_irqs) {
            limit = MIN(limit, next->icount_held_irqs->time);
        }
        *budget = limit - next->icount_time;
        return next;
    }
}

void icount_percpu_begin(CPUState *cpu, int64_t budget)
{
    int low = MIN(0xffff, budget);

    cpu->icount_budget = budget;
    cpu->neg.icount_decr.u16.low = low;
    cpu->icount_extra = budget - low;
}

void icount_percpu_end(CPUState *cpu)
{
    icount_update(cpu);
    cpu->neg.icount_decr.u16.low = 0;
    cpu->icount_extra = 0;
    cpu->icount_budget = 0;
}

void icount_percpu_handle_interrupt(CPUState *cpu, int mask)
{
    CPUState *sender = qemu_in_vcpu_thread() ? current_cpu : NULL;

    if (is_waiting(cpu)) {
        cpu->icount_time = MAX(cpu->icount_time,
                               sender ? icount_get_raw() : latest_time());
        if (sender && sender->running) {
            cpu_exit(sender);
        }
    }
    tcg_handle_interrupt(cpu, mask);
}

bool icount_percpu_hold_irq(CPUState *cpu, IcountDeliverIrq *deliver,
                            void *opaque, int vector, int trigger_mode)
{
    CPUState *sender = qemu_in_vcpu_thread() ? current_cpu : NULL;
    IcountHeldIrq *irq, **place = &cpu->icount_held_irqs;
    int64_t now;

    if (!sender || !sender->running || cpu == sender || is_waiting(cpu)) {
        return false;
    }
    now = icount_get_raw();
    if (cpu->icount_time >= now) {
        return false;
    }
    while (*place && (*place)->time <= now) {
        place = &(*place)->next;
    }
    irq = g_new(IcountHeldIrq, 1);
    *irq = (IcountHeldIrq) {
        .next = *place, .time = now, .deliver = deliver, .opaque = opaque,
        .vector = vector, .trigger_mode = trigger_mode,
    };
    *place = irq;
    return true;
}

void icount_percpu_timer_changed(void)
{
    /* Outside of a turn, icount_percpu_next() sees the timer. */
    if (current_cpu->running && !turn_ended) {
        turn_ended = true;
        cpu_exit(current_cpu);
    }
}

void icount_percpu_settle(void)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        while (cpu->icount_held_irqs) {
            deliver_first_held(cpu);
        }
    }
    raise_floor(latest_time());
}

bool icount_percpu_skip_wait(void)
{
    int64_t deadline = next_deadline();
    CPUState *cpu;

    if (held || !all_cpu_threads_idle() || deadline == INT64_MAX) {
        return false;
    }
    CPU_FOREACH(cpu) {
        if (cpu->icount_held_irqs) {
            return false; /* the vCPU thread is about to deliver them */
        }
    }
    raise_floor(deadline);
    return true;
}

void icount_hold(void)
{
    if (icount_window) {
        assert(bql_locked());
        held++;
        if (qemu_in_vcpu_thread() && current_cpu->running) {
            cpu_exit(current_cpu);
        }
    }
}

void icount_release(void)
{
    if (icount_window) {
        assert(bql_locked() && held > 0);
        if (--held == 0 && !qemu_in_vcpu_thread()) {
            qemu_cpu_kick(first_cpu);
            qemu_cond_broadcast(first_cpu->halt_cond);
        }
    }
}
