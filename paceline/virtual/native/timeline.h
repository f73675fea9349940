// Streams and the emulated link, as points in time.
//
// Kernels run at once in the thread that calls them, so a stream needs no queue. With an emulated
// link a copy is done at some later moment: it makes its stream late, and whoever needs that stream
// next (a kernel, an event, the host) waits until that moment. Copies on a side stream therefore
// overlap with kernels on another one, as they do on a GPU.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace paceline {

// Nanoseconds of the steady clock.
using Moment = int64_t;

Moment now();

c10::Stream current_stream(c10::DeviceIndex device);
c10::Stream new_stream(c10::DeviceIndex device);
c10::Stream exchange_stream(c10::Stream stream);

// When all that was put on the stream is done: in the past unless a link is emulated.
Moment stream_done(const c10::Stream& stream);
void delay_stream(const c10::Stream& stream, Moment until);
Moment device_done(c10::DeviceIndex device);

void wait_until(Moment moment);

// Zero bytes per second: no link is emulated.
void set_link(double bytes_per_s, double latency_s);
bool link_is_emulated();

// Lets a kernel on this device start no earlier than its stream allows.
void wait_for_stream(c10::DeviceIndex device);

// Counts a copy between two endpoints (an index or kHost) and puts it on their streams and on the link.
// `ready` is when it could begin: the time that this machine took to move the bytes is not added.
// Returns when it is done: in the past unless a link is emulated.
Moment account_for_copy(int from, int to, int64_t bytes, Moment ready);

} // namespace paceline
