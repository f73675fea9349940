// A virtual storage is a shell around a CPU storage: the same bytes, owned by the CPU's allocator,
// counted on a virtual device. A CPU kernel is given the CPU storage inside, and what a CPU kernel
// made gets a shell. No byte is copied for either.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace paceline {

c10::Allocator* virtual_allocator();

// Counts the CPU storage on the device and puts a shell around it.
c10::Storage wrap_storage(c10::Storage cpu, c10::DeviceIndex device);

// The CPU storage inside a virtual one. Memory that PyTorch declared to be on the device without
// asking this allocator (at::from_blob) is CPU memory too, and gets a CPU storage for the moment.
c10::Storage cpu_storage(const c10::Storage& storage);

// Follows a CPU storage that a kernel has resized: its bytes moved, and the count changes. Growth that
// the device refuses is taken back.
void refresh_shell(const c10::Storage& shell);

void resize_storage(const c10::Storage& shell, size_t bytes);

// Page-locked memory has no meaning here, but programs ask for it and test for it.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

} // namespace paceline
