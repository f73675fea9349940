#include "storage.h"

#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_set>

#include "device.h"
#include "ledger.h"

namespace paceline {
namespace {

struct Shell {
  c10::Storage cpu;
  int64_t bytes;
  c10::DeviceIndex device;
};

void drop_shell(void* context) {
  auto* shell = static_cast<Shell*>(context);
  release(shell->device, shell->bytes);
  delete shell;
}

// Null for memory that is not this allocator's.
Shell* shell_of(const c10::DataPtr& pointer) {
  return pointer.get_deleter() == &drop_shell ? static_cast<Shell*>(pointer.get_context()) : nullptr;
}

void drop_storage(void* context) {
  delete static_cast<c10::Storage*>(context);
}

c10::Storage over_foreign_memory(const c10::Storage& storage) {
  auto* kept = new c10::Storage(storage);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      storage.nbytes(),
      c10::DataPtr(kept->mutable_data(), kept, &drop_storage, c10::Device(c10::DeviceType::CPU)),
      /*allocator=*/nullptr,
      /*resizable=*/false);
}

// The caller has reserved the bytes.
c10::DataPtr make_shell(c10::Storage cpu, c10::DeviceIndex device) {
  void* data = cpu.mutable_data();
  const auto bytes = static_cast<int64_t>(cpu.nbytes());
  auto* shell = new Shell{std::move(cpu), bytes, device};
  return {data, shell, &drop_shell, c10::Device(kVirtual, device)};
}

// Changes how many bytes of the shell the device counts.
void count_as(Shell& shell, int64_t bytes) {
  if (bytes > shell.bytes) {
    reserve(shell.device, bytes - shell.bytes);
  } else {
    release(shell.device, shell.bytes - bytes);
  }
  shell.bytes = bytes;
}

void point_to_inside(c10::StorageImpl& impl, Shell* shell) {
  c10::DataPtr before = impl.set_data_ptr(c10::DataPtr());
  before.release_context(); // the shell lives on under the new pointer
  impl.set_data_ptr_noswap(
      {shell->cpu.mutable_data(), shell, &drop_shell, c10::Device(kVirtual, shell->device)});
  impl.set_nbytes(shell->cpu.nbytes());
}

c10::Storage new_cpu_storage(size_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      c10::GetCPUAllocator()->allocate(bytes),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

// What a device without a limit could hold at most.
int64_t machine_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PAGESIZE)) * sysconf(_SC_PHYS_PAGES);
}

class VirtualAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto device = current_device();
    reserve(device, static_cast<int64_t>(bytes));
    try {
      return make_shell(new_cpu_storage(bytes), device);
    } catch (...) {
      release(device, static_cast<int64_t>(bytes));
      throw;
    }
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  bool initialized() override {
    return true;
  }

  // Nothing is cached: freed bytes go back at once.
  void emptyCache(c10::MempoolId_t) override {}

  // Kernels have run when their call returns, so no stream can still use a freed block.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    check_index(device);
    const auto counts = memory_counts(device);
    c10::CachingAllocator::Stat bytes;
    bytes.current = counts.live_bytes;
    bytes.peak = counts.peak_bytes;
    bytes.allocated = counts.allocated_bytes;
    bytes.freed = counts.allocated_bytes - counts.live_bytes;
    c10::CachingDeviceAllocator::DeviceStats stats;
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    // Without a cache, what is reserved, active and requested is what is allocated.
    for (auto* kind :
         {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*kind)[kAll] = bytes;
    }
    stats.allocation[kAll].allocated = counts.num_allocations;
    stats.num_device_alloc = counts.num_allocations;
    stats.num_ooms = counts.num_refused;
    return stats;
  }

  // The counts over the life of the process are also paceline's own record, so they stay.
  void resetAccumulatedStats(c10::DeviceIndex) override {}

  // No `override`: older PyTorch does not ask.
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) {
    check_index(device);
    const auto counts = memory_counts(device);
    const int64_t total = counts.limit_bytes != 0 ? counts.limit_bytes : machine_memory_bytes();
    const int64_t free = std::max<int64_t>(0, total - counts.live_bytes);
    return {static_cast<size_t>(free), static_cast<size_t>(total)};
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    check_index(device);
    reset_peak(device);
  }
};

VirtualAllocator allocator;
REGISTER_ALLOCATOR(kVirtual, &allocator)

class PinnedMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    auto block = c10::GetCPUAllocator()->allocate(bytes);
    void* data = block.get();
    if (data == nullptr) {
      return block;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      blocks_.insert(data);
    }
    auto* owner = new c10::DataPtr(std::move(block));
    return {data, owner, &drop, c10::Device(c10::DeviceType::CPU)};
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  bool holds(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    return blocks_.count(data) != 0;
  }

 private:
  static void drop(void* context);

  std::mutex mutex_;
  std::unordered_set<const void*> blocks_;
};

// Never destroyed: tensors of a program may be freed after the statics of this library.
PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory();
  return *memory;
}

void PinnedMemory::drop(void* context) {
  auto* block = static_cast<c10::DataPtr*>(context);
  {
    std::lock_guard<std::mutex> lock(pinned_memory().mutex_);
    pinned_memory().blocks_.erase(block->get());
  }
  delete block;
}

} // namespace

c10::Allocator* virtual_allocator() {
  return &allocator;
}

c10::Storage wrap_storage(c10::Storage cpu, c10::DeviceIndex device) {
  const size_t bytes = cpu.nbytes();
  reserve(device, static_cast<int64_t>(bytes));
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      bytes,
      make_shell(std::move(cpu), device),
      &allocator,
      /*resizable=*/true);
}

c10::Storage cpu_storage(const c10::Storage& storage) {
  const auto* shell = shell_of(storage.data_ptr());
  return shell == nullptr ? over_foreign_memory(storage) : shell->cpu;
}

void refresh_shell(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  auto* shell = shell_of(impl->data_ptr());
  if (shell == nullptr) {
    return; // foreign memory cannot be resized
  }
  const auto bytes = static_cast<int64_t>(shell->cpu.nbytes());
  if (shell->cpu.data() == impl->data() && shell->bytes == bytes) {
    return;
  }
  try {
    count_as(*shell, bytes);
  } catch (...) {
    // The tensor lives on as it was: what the device refused must not stay behind its shell.
    at::native::resize_bytes_cpu(shell->cpu.unsafeGetStorageImpl(), shell->bytes);
    point_to_inside(*impl, shell);
    throw;
  }
  point_to_inside(*impl, shell);
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const auto cpu = cpu_storage(storage);
  if (auto* shell = shell_of(storage.data_ptr())) {
    count_as(*shell, static_cast<int64_t>(bytes)); // before memory is taken that the device has not
  }
  try {
    at::native::resize_bytes_cpu(cpu.unsafeGetStorageImpl(), bytes);
  } catch (...) {
    refresh_shell(storage);
    throw;
  }
  refresh_shell(storage);
}

c10::Allocator* pinned_allocator() {
  return &pinned_memory();
}

bool is_pinned(const void* data) {
  return pinned_memory().holds(data);
}

} // namespace paceline
