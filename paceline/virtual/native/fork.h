// A process made by fork cannot go on with the devices of its parent: CUDA refuses it, so it is refused here.
#pragma once

namespace paceline {

// From now on a fork after the first use of a device is noticed.
void watch_forks();

// Every use of a device begins here; raises in a process that was forked after such a use.
void check_process();

bool is_in_bad_fork() noexcept;

} // namespace paceline
