// The parallel loop of <tenon/parallel.hpp>: OpenMP, or std::thread where the thread sanitizer must see every
// synchronisation (TENON_PORTABLE_THREADS). Blocks are the same for every number of threads, all of them run
// even if one throws, and the exception of the lowest block is the one rethrown: the outcome never depends on
// the team.
#include "plugin/guard.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>

#ifdef TENON_PORTABLE_THREADS
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

TENON_ABI_BEGIN

namespace {

// One loop over blocks, shared by the threads that run it.
class BlockLoop {
 public:
  BlockLoop(std::int64_t count, std::int64_t block, void* body,
            void (*call)(void*, std::int64_t, std::int64_t))
      : count_(count),
        block_(block),
        blocks_(count / block + (count % block != 0)),
        body_(body),
        call_(call) {}

  std::int64_t blocks() const { return blocks_; }

  void run(std::int64_t index) noexcept {
    const std::int64_t begin = index * block_;
    try {
      call_(body_, begin, count_ - begin > block_ ? begin + block_ : count_);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_ || index < failed_) {
        error_ = std::current_exception();
        failed_ = index;
      }
    }
  }

  void rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::int64_t count_, block_, blocks_;
  void* body_;
  void (*call_)(void*, std::int64_t, std::int64_t);
  std::mutex mutex_;
  std::exception_ptr error_;
  std::int64_t failed_ = 0;
};

void run_serially(BlockLoop& loop) {
  for (std::int64_t i = 0; i < loop.blocks(); ++i) loop.run(i);
}

#ifdef TENON_PORTABLE_THREADS

// Per thread by contract, like OpenMP's own setting: a rank sets its share and no other.
thread_local int threads_of_this_thread = 0;
thread_local bool inside_loop = false;

bool nested() {
  return inside_loop;
}

void run_team(BlockLoop& loop, int threads) {
  std::atomic<std::int64_t> next{0};
  const GuardContext* const call = current_plugin_call();
  const auto work = [&] {
    const PluginCallScope helps(call);
    inside_loop = true;
    for (std::int64_t i = next++; i < loop.blocks(); i = next++) loop.run(i);
    inside_loop = false;
  };
  std::vector<std::thread> team;
  team.reserve(threads);
  try {
    while (static_cast<int>(team.size()) + 1 < threads) team.emplace_back(work);
  } catch (const std::system_error&) {
    // Fewer threads than asked for: those that started and the caller do the work.
  }
  work();
  for (std::thread& member : team) member.join();
}

#else

bool nested() {
  return omp_in_parallel() != 0;
}

void run_team(BlockLoop& loop, int threads) {
  const std::int64_t blocks = loop.blocks();
  const GuardContext* const call = current_plugin_call();
#pragma omp parallel num_threads(threads)
  {
    const PluginCallScope helps(call);
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < blocks; ++i) loop.run(i);
  }
}

#endif

}  // namespace

#ifdef TENON_PORTABLE_THREADS
int parallel_threads() noexcept {
  if (threads_of_this_thread > 0) return threads_of_this_thread;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
void set_parallel_threads(int threads) noexcept {
  threads_of_this_thread = std::max(1, threads);
}
#else
int parallel_threads() noexcept {
  return omp_get_max_threads();
}
void set_parallel_threads(int threads) noexcept {
  omp_set_num_threads(std::max(1, threads));
}
#endif

namespace detail {

void parallel_for_blocks(std::int64_t count, std::int64_t block, void* body,
                         void (*call)(void*, std::int64_t begin, std::int64_t end)) {
  if (count <= 0) return;
  if (block <= 0) fail_run("parallel_for: block is " + std::to_string(block) + ", expected at least 1");
  BlockLoop loop(count, block, body, call);
  const auto threads =
      static_cast<int>(std::min<std::int64_t>(std::max(1, parallel_threads()), loop.blocks()));
  if (threads == 1 || nested()) {
    run_serially(loop);
  } else {
    run_team(loop, threads);
  }
  loop.rethrow();
}

}  // namespace detail

TENON_ABI_END
