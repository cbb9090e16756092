// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
// The worker's XDP half compiled for this machine.
#include "worker_env_native.h"
#include "worker.h"

/* Returns the XDP action (LEFT for "next slot") and the reason above it, as the program itself does. */
int weir_native_worker_run(struct w_world *w)
{
	int r;

	this_world = w;
	r = decapsulate(w);
	count_reason((__u32)r >> 8);
	this_world = NULL;
	return r;
}

__u32 weir_native_worker_world_size(void) { return sizeof(struct w_world); }
