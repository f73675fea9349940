#include "fork.h"

#include <c10/util/Exception.h>

#include <pthread.h>

#include <atomic>

namespace paceline {
namespace {

std::atomic<bool> is_used{false};
std::atomic<bool> is_forked{false};

void note_child() {
  is_forked = is_used.load();
}

} // namespace

void watch_forks() {
  pthread_atfork(nullptr, nullptr, &note_child);
}

void check_process() {
  TORCH_CHECK(
      !is_in_bad_fork(),
      "Cannot re-initialize virtual devices in forked subprocess. To use them with multiprocessing, "
      "you must use the 'spawn' start method");
  if (C10_UNLIKELY(!is_used.load(std::memory_order_relaxed))) {
    is_used = true;
  }
}

bool is_in_bad_fork() noexcept {
  return is_forked.load(std::memory_order_relaxed);
}

} // namespace paceline
