// Names the plugin call or the kernel that does not return: one thread of the process looks at which calls
// its threads are inside (plugin/call_watch.hpp) and at where its ranks compute, which costs them two stores
// a call or node. Waits for other ranks have deadlines of their own and do not count.
#pragma once

#include "graph/pass_place.hpp"
#include "loop/rank_host.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tenon::train {

class WatchedRank;

/// A call of a plugin, or a pass of a node, that has taken longer than the run's deadline.
struct LatePass {
  RankHost* host = nullptr;  ///< of its rank; valid during the call, null where no rank made the call
  int exit_status = 0;
  double over_s = 0;  ///< beyond its time
  std::string text;   ///< says all of it
};

class PassWatch {
 public:
  /// `late` is called once when the pass has taken `seconds`, and `lost` again and again while it has still
  /// not ended a moment after that; both by the watching thread, and neither may wait for ranks to end.
  /// `failed`: whether the run has failed.
  PassWatch(double seconds, std::function<bool()> failed, std::function<void(const LatePass&)> late,
            std::function<void(const LatePass&)> lost);
  ~PassWatch();
  PassWatch(const PassWatch&) = delete;
  PassWatch& operator=(const PassWatch&) = delete;

  /// Whether some pass is so late that `late` may be called within patience().
  bool expects_one() const;
  /// Longest delay, in seconds, between the limit of a pass and its report.
  double patience() const { return 4 * every_s_; }

 private:
  friend class WatchedRank;
  void add(WatchedRank& rank);
  void remove(WatchedRank& rank);
  void watch();
  void look(double seconds);
  /// Whether a call of a plugin is late, which then is reported in place of passes.
  bool look_at_calls(double seconds);
  void report(const LatePass& pass, bool told, double seconds);

  const double limit_s_, every_s_;
  const std::function<bool()> failed_;
  const std::function<void(const LatePass&)> late_, lost_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WatchedRank*> ranks_;
  bool ending_ = false;
  bool told_ = false;         ///< that a call is late
  double call_left_s_ = 1e9;  ///< before the call that lasts longest is late
  std::thread thread_;
};

/// One rank of this process, for the life of the object.
class WatchedRank {
 public:
  WatchedRank(PassWatch& watch, RankHost& host) : watch_(watch), host_(host) { watch_.add(*this); }
  ~WatchedRank() { watch_.remove(*this); }
  WatchedRank(const WatchedRank&) = delete;
  WatchedRank& operator=(const WatchedRank&) = delete;

  /// "avx2, 2 threads", for messages.
  void set_kernels(std::string kernels);
  graph::PassPlaces& places() { return places_; }

 private:
  friend class PassWatch;
  PassWatch& watch_;
  RankHost& host_;
  graph::PassPlaces places_;
  std::string kernels_;
  double seconds_ = 0;  ///< of the pass that has taken longest
  bool told_ = false;   ///< that it is late
};

}  // namespace tenon::train
