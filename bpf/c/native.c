// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The packet path compiled for this machine.
#include "env_native.h"
#include "lb.h"

/* Returns the XDP action (LEFT for "next slot") and the reason above it, as the program itself does. */
int weir_native_run(struct world *w)
{
	int r;

	this_world = w;
	r = decide(w);
	count_reason((__u32)r >> 8);
	this_world = NULL;
	return r;
}

__u32 weir_native_world_size(void) { return sizeof(struct world); }
