// What each device holds, and what crossed between devices.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace paceline {

struct MemoryCounts {
  int64_t live_bytes;
  int64_t peak_bytes;
  int64_t limit_bytes; // 0: none
  int64_t num_allocations;
  int64_t allocated_bytes; // over the whole life of the process
  int64_t num_refused; // allocations that the limit turned down
};

// Counts bytes on a device, or raises torch.OutOfMemoryError and counts nothing.
void reserve(c10::DeviceIndex device, int64_t bytes);
void release(c10::DeviceIndex device, int64_t bytes) noexcept;

MemoryCounts memory_counts(c10::DeviceIndex device);
void reset_peak(c10::DeviceIndex device);
void set_limit(c10::DeviceIndex device, int64_t bytes);

// The endpoint of a copy that is no virtual device.
constexpr int kHost = -1;

struct TransferCounts {
  int64_t count;
  int64_t bytes;
};

void count_transfer(int from, int to, int64_t bytes);
TransferCounts transfer_counts(int from, int to);
void reset_transfers();

} // namespace paceline
