#include "sync_watch.hpp"

#include "base/elapsed.hpp"
#include "plugin/guard.hpp"

#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <thread>
#include <utility>

namespace tenon::conformance {
namespace {

/// Buffers follow [sync] buffers, which may leave them to each replica.
std::vector<double> values_of(Device& device, const ParameterSet& set, bool with_buffers = true) {
  std::vector<double> all;
  for (const ParameterInfo& info : set.parameters()) {
    if (!with_buffers && info.spec.role == Role::kBuffer) continue;
    const std::vector<double> values = testing::read(device, set.tensor(info.index));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<std::uint64_t> versions_of(const ParameterSet& set) {
  std::vector<std::uint64_t> versions;
  for (const ParameterInfo& info : set.parameters()) versions.push_back(set.version(info.index));
  return versions;
}

bool same(const SlotPlan& a, const SlotPlan& b) {
  return a.kind == b.kind && a.lr_scale == b.lr_scale && a.consumes_data == b.consumes_data;
}

}  // namespace

std::map<int, ReplicaSeen> SyncLog::take() {
  const std::lock_guard lock(mutex);
  return std::exchange(replicas, {});
}

SyncLog& sync_log() {
  static SyncLog log;
  return log;
}

WatchedSync::WatchedSync(const Options& options)
    : SyncDecorator(options.component<Sync>("inner")),
      drawn_(options.boolean("drawn")),
      delays_(options.boolean("delays")),
      ask_plans_(options.boolean("ask_plans")),
      quiesces_(options.boolean("quiesces")),
      stall_s_(options.real("stall_s")) {}

void WatchedSync::start(Replica& replica) {
  SyncBase::start(replica);  // needed by replica()
  SyncDecorator::start(replica);
  seen_.group = gradient_group();
  seen_.start = values_of(replica.device(), replica.live());
}

void WatchedSync::draw(const Bucket& bucket) {
  ParameterSet& set = replica().gradients();
  const RandomKey key = random_key(17, fmt::format("gradients of {}", replica().replica()));
  for (const ParameterInfo& info : set.parameters()) {
    const TensorView view = set.tensor(info.index);
    if (info.arena != bucket.arena || view.empty() || info.begin < bucket.begin ||
        info.begin >= bucket.begin + bucket.gradients.elements()) {
      continue;
    }
    std::vector<double> values(view.elements(), 0.0);
    for (std::int64_t i = 0; i < view.elements(); ++i) {
      const std::int64_t element = info.begin - bucket.begin + i;
      if (owner(element, replica().replicas()) != replica().replica()) continue;
      values[i] = 0.01 * random_normal(key, static_cast<std::uint64_t>(bucket.index),
                                       static_cast<std::uint64_t>(element));
    }
    testing::write(replica().device(), view, values);
  }
}

void WatchedSync::wait_a_little(std::uint64_t where) {
  if (!delays_) return;
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const RandomKey key = random_key(now, "delay");
  std::this_thread::sleep_for(std::chrono::microseconds(
      random_below(key, where, static_cast<std::uint64_t>(replica().replica()), 2500)));
}

// Not as a call that hangs: the run shall end because of the replica that waits.
void WatchedSync::stall() {
  const OutsideCall outside;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(stall_s_);
  const auto gave_up = [&] {
    const std::lock_guard lock(sync_log().mutex);
    return sync_log().replicas[0].longest_call_s > stall_s_ / 3;
  };
  while (std::chrono::steady_clock::now() < limit && !gave_up())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

template <typename Call>
void WatchedSync::timed(Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  const auto end = [&](const std::string& error) {
    const double took = base::seconds_since(begin);
    seen_.longest_call_s = std::max(seen_.longest_call_s, took);
    const std::lock_guard lock(sync_log().mutex);
    ReplicaSeen& logged = sync_log().replicas[replica().replica()];
    logged.longest_call_s = std::max(logged.longest_call_s, took);
    logged.error = error;
  };
  try {
    call();
  } catch (const std::exception& e) {
    end(e.what());
    throw;
  }
  end({});
}

std::vector<double> WatchedSync::gradients() {
  std::vector<double> all;
  for (const Bucket& bucket : replica().buckets()) {
    const std::vector<double> values = testing::read(replica().device(), bucket.gradients);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void WatchedSync::on_gradients_ready(const Bucket& bucket) {
  if (stall_s_ > 0 && bucket.index == 0 && replica().slot() == 3 && replica().replica() == 1) stall();
  if (drawn_) draw(bucket);
  const std::vector<double> values = testing::read(replica().device(), bucket.gradients);
  now_.own.insert(now_.own.end(), values.begin(), values.end());
  wait_a_little(static_cast<std::uint64_t>(bucket.index));
  timed([&] { SyncDecorator::on_gradients_ready(bucket); });
}

void WatchedSync::finish_gradients() {
  wait_a_little(1000);
  timed([&] { SyncDecorator::finish_gradients(); });
  now_.received = gradients();
}

void WatchedSync::after_step(const Slot& slot, const StepOutcome& outcome) {
  Device& device = replica().device();
  ParameterSet& live = replica().live();
  const std::vector<std::uint64_t> versions = versions_of(live);
  std::vector<std::vector<double>> before;
  for (const ParameterInfo& info : live.parameters())
    before.push_back(testing::read(device, live.tensor(info.index)));
  wait_a_little(2000);
  timed([&] { SyncDecorator::after_step(slot, outcome); });
  // A strategy that writes in the background may be between its writes and its touch.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  const auto touched = [&](const ParameterInfo& info) {
    const std::size_t i = info.index;
    while (versions[i] == live.version(info.index)) {
      if (said_untouched_ || std::chrono::steady_clock::now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  };
  for (const ParameterInfo& info : live.parameters()) {
    const std::size_t i = info.index;
    if (versions[i] == live.version(info.index) &&
        before[i] != testing::read(device, live.tensor(info.index)) && !touched(info)) {
      said_untouched_ = true;
      complain(
          fmt::format("after_step of slot {} wrote to '{}' without live().touch({}): copies in other formats "
                      "stay as they "
                      "were, and products use those",
                      slot.t, info.spec.name, info.index));
    }
  }
  if (ask_plans_) ask_plans(slot);
  if (quiesces_) {
    replica().pause();
    for (int i = 0; i < 2; ++i) timed([&] { quiesce(); });
    const ParameterSet& evaluated = evaluation_parameters();
    if (&evaluated != &live) now_.evaluated = values_of(device, evaluated, false);
    replica().resume();
  }
  now_.t = slot.t;
  now_.applied = outcome.applied;
  now_.weights = values_of(device, live);
  seen_.slots.push_back(std::exchange(now_, {}));
  const std::lock_guard lock(sync_log().mutex);
  sync_log().replicas[replica().replica()] = seen_;
}

void WatchedSync::ask_plans(const Slot& slot) {
  for (const std::int64_t t : {slot.t + 3, std::int64_t{0}, slot.t, slot.t + 1, std::int64_t{2}, slot.t}) {
    for (int r = replica().replicas() - 1; r >= 0; --r) {
      const SlotPlan answer = plan({t, r, slot.lr});
      const auto known = plans_.try_emplace({t, r}, answer).first;
      if (!same(known->second, answer) || !same(plan({t, r, slot.lr}), answer)) {
        complain(
            fmt::format("plan() of slot {} for replica {} was one thing and later another: it may depend on "
                        "configuration, "
                        "seed, Slot::replica and Slot::t alone",
                        t, r));
      }
      static std::mutex mutex;
      static std::map<std::pair<std::int64_t, int>, SlotPlan> all;  // shared by the objects of all replicas
      const std::lock_guard lock(mutex);
      const auto [other, alone] = all.try_emplace({t, r}, answer);
      if (!alone && !same(other->second, answer)) {
        complain(
            fmt::format("two objects plan slot {} of replica {} differently: Slot::replica says for whom "
                        "plan() is asked, not "
                        "the replica that asks",
                        t, r));
      }
    }
  }
}

void WatchedSync::complain(const std::string& text) {
  if (seen_.complaint.empty()) seen_.complaint = text;
}

}  // namespace tenon::conformance
