"""QEMU with a clock for each processor: Debian's source of QEMU with a patch of Seatrial's own.

``build`` builds it once and saves it. The C files and the patch become part of QEMU and have its
licence, GPL-2.0-or-later; see README.md.
"""
