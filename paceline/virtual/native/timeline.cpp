#include "timeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>

#include "device.h"
#include "ledger.h"

namespace paceline {
namespace {

using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

std::atomic<bool> emulated{false};
double link_bytes_per_s = 0;
double link_latency_s = 0;

std::mutex mutex;
std::map<StreamKey, Moment> streams_done; // guarded by mutex
std::map<std::pair<int, int>, Moment> links_done; // guarded by mutex

thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};
std::atomic<c10::StreamId> last_stream{0};

StreamKey key_of(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

Moment duration_of(int64_t bytes) {
  return static_cast<Moment>(1e9 * (link_latency_s + static_cast<double>(bytes) / link_bytes_per_s));
}

} // namespace

Moment now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

c10::Stream current_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kVirtual, device), current_streams[device]);
}

c10::Stream new_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kVirtual, device), ++last_stream);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const auto before = current_stream(stream.device_index());
  current_streams[stream.device_index()] = stream.id();
  return before;
}

Moment stream_done(const c10::Stream& stream) {
  if (!link_is_emulated()) {
    return 0;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = streams_done.find(key_of(stream));
  return found == streams_done.end() ? 0 : found->second;
}

void delay_stream(const c10::Stream& stream, Moment until) {
  if (!link_is_emulated()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex);
  auto& done = streams_done[key_of(stream)];
  done = std::max(done, until);
}

Moment device_done(c10::DeviceIndex device) {
  std::lock_guard<std::mutex> lock(mutex);
  Moment latest = 0;
  for (const auto& [key, done] : streams_done) {
    if (key.first == device) {
      latest = std::max(latest, done);
    }
  }
  return latest;
}

void wait_until(Moment moment) {
  // The system may oversleep by this much, and a link's latency is of the same size.
  constexpr Moment kOversleep = 200'000;
  const Moment rest = moment - now();
  if (rest > kOversleep) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(rest - kOversleep));
  }
  while (now() < moment) {
  }
}

void set_link(double bytes_per_s, double latency_s) {
  link_bytes_per_s = bytes_per_s;
  link_latency_s = latency_s;
  emulated = bytes_per_s > 0;
}

bool link_is_emulated() {
  return emulated.load(std::memory_order_relaxed);
}

void wait_for_stream(c10::DeviceIndex device) {
  if (link_is_emulated()) {
    wait_until(stream_done(current_stream(device)));
  }
}

Moment account_for_copy(int from, int to, int64_t bytes, Moment ready) {
  count_transfer(from, to, bytes);
  if (!link_is_emulated()) {
    return 0;
  }
  std::lock_guard<std::mutex> lock(mutex);
  auto& link = links_done[{from, to}];
  Moment start = std::max(ready, link);
  for (const int endpoint : {from, to}) {
    if (endpoint != kHost) {
      start = std::max(start, streams_done[key_of(current_stream(static_cast<c10::DeviceIndex>(endpoint)))]);
    }
  }
  const Moment done = start + duration_of(bytes);
  link = done;
  for (const int endpoint : {from, to}) {
    if (endpoint != kHost) {
      streams_done[key_of(current_stream(static_cast<c10::DeviceIndex>(endpoint)))] = done;
    }
  }
  return done;
}

} // namespace paceline
