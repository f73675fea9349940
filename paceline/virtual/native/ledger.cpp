#include "ledger.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <iomanip>
#include <sstream>

#include "device.h"
#include "fork.h"

namespace paceline {
namespace {

struct Account {
  std::atomic<int64_t> live{0};
  std::atomic<int64_t> peak{0};
  std::atomic<int64_t> limit{0};
  std::atomic<int64_t> num_allocations{0};
  std::atomic<int64_t> allocated{0};
  std::atomic<int64_t> num_refused{0};
};

struct Route {
  std::atomic<int64_t> count{0};
  std::atomic<int64_t> bytes{0};
};

std::array<Account, kMaxDevices> accounts;

// Row and column 0 are the host, so that an endpoint is found at its index + 1.
std::array<std::array<Route, kMaxDevices + 1>, kMaxDevices + 1> routes;

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load();
  while (value > seen && !peak.compare_exchange_weak(seen, value)) {
  }
}

std::string readable(int64_t bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const auto mib = static_cast<double>(bytes) / kMiB;
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (mib >= 1024) {
    text << mib / 1024 << " GiB";
  } else if (mib >= 1) {
    text << mib << " MiB";
  } else {
    text << std::setprecision(0) << static_cast<double>(bytes) << " bytes";
  }
  return text.str();
}

[[noreturn]] void refuse(c10::DeviceIndex device, int64_t wanted, int64_t live, int64_t limit) {
  ++accounts[device].num_refused;
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "virtual out of memory. Tried to allocate ",
      readable(wanted),
      ". Device virtual:",
      static_cast<int>(device),
      " has a total capacity of ",
      readable(limit),
      " of which ",
      readable(limit - live),
      " is free. ",
      readable(live),
      " is allocated by PyTorch.");
  std::abort(); // the check above always throws, but the compiler cannot know
}

} // namespace

void reserve(c10::DeviceIndex device, int64_t bytes) {
  check_process();
  auto& account = accounts[device];
  const int64_t live = account.live.fetch_add(bytes) + bytes;
  const int64_t limit = account.limit.load(std::memory_order_relaxed);
  if (limit != 0 && live > limit) {
    account.live -= bytes;
    refuse(device, bytes, live - bytes, limit);
  }
  raise_to(account.peak, live);
  ++account.num_allocations;
  account.allocated += bytes;
}

void release(c10::DeviceIndex device, int64_t bytes) noexcept {
  accounts[device].live -= bytes;
}

MemoryCounts memory_counts(c10::DeviceIndex device) {
  const auto& account = accounts[device];
  return {
      account.live.load(),
      account.peak.load(),
      account.limit.load(),
      account.num_allocations.load(),
      account.allocated.load(),
      account.num_refused.load()};
}

void reset_peak(c10::DeviceIndex device) {
  accounts[device].peak = accounts[device].live.load();
}

void set_limit(c10::DeviceIndex device, int64_t bytes) {
  accounts[device].limit = bytes;
}

void count_transfer(int from, int to, int64_t bytes) {
  auto& route = routes[from + 1][to + 1];
  ++route.count;
  route.bytes += bytes;
}

TransferCounts transfer_counts(int from, int to) {
  const auto& route = routes[from + 1][to + 1];
  return {route.count.load(), route.bytes.load()};
}

void reset_transfers() {
  for (auto& row : routes) {
    for (auto& route : row) {
      route.count = 0;
      route.bytes = 0;
    }
  }
}

} // namespace paceline
