// Checks of strategies: replicas agree on gradients and weights, plans are pure, waits end, and traffic does
// not depend on time.
#include "subject.hpp"
#include "sync_watch.hpp"

#include "base/elapsed.hpp"

#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace tenon::conformance {
namespace {

struct Watched {
  RunResult result;
  std::map<int, ReplicaSeen> seen;
};

/// sync.type = the watch, around the strategy under test.
std::string watched_sync(Subject& subject, const std::string& options) {
  Value inner = subject.given().options;
  inner.set("type", Value(subject.type()), {});
  return fmt::format("sync={{type = \"conformance_watched\", inner = {}{}}}", inner.inline_toml(), options);
}

Watched watch(Subject& subject, RunRequest request, const std::string& options) {
  request.sets.push_back(watched_sync(subject, options));
  sync_log().take();
  Watched watched;
  watched.result = subject.train(request);
  subject.require_taken(watched.result);
  watched.seen = sync_log().take();
  return watched;
}

Watched watch_well(Subject& subject, const RunRequest& request, const std::string& options,
                   const std::string& what) {
  Watched watched = watch(subject, request, options);
  if (watched.result.status != "completed") {
    fail(fmt::format("{} on {} ranks ended as {}: {}", what, request.ranks, watched.result.status,
                     watched.result.error));
  }
  for (const auto& [replica, seen] : watched.seen) {
    if (!seen.complaint.empty()) fail(fmt::format("replica {}: {}", replica, seen.complaint));
  }
  return watched;
}

void require_shared_updates(const Watched& watched) {
  if (watched.seen.begin()->second.group != GradientGroup::kAllReplicas)
    not_applicable("replicas update alone (GradientGroup::kReplica)");
}

/// Fails unless `part` of each slot is the same on all replicas.
void require_equal(const Watched& watched, std::vector<double> SlotSeen::*part, const char* what) {
  const std::vector<SlotSeen>& first = watched.seen.begin()->second.slots;
  for (const auto& [replica, seen] : watched.seen) {
    for (std::size_t i = 0; i < std::min(first.size(), seen.slots.size()); ++i) {
      const std::vector<double>&mine = seen.slots[i].*part, &others = first[i].*part;
      for (std::size_t j = 0; j < mine.size(); ++j) {
        if (mine[j] == others[j]) continue;
        fail(
            fmt::format("slot {}: {} of replica {} differ from replica 0's at element {}: {} and {}; with "
                        "GradientGroup::kAllReplicas they must be equal bit for bit",
                        seen.slots[i].t, what, replica, j, mine[j], others[j]));
      }
    }
  }
}

// Each replica's gradient is not zero where all others' are, and is the same in each slot. The sum received
// there over the run is that replica's share, also for strategies that send a part and keep the rest for
// later.
void returns_the_mean(Subject& subject) {
  for (const int ranks : {1, 2, 4}) {
    const Watched watched =
        watch_well(subject, {.ranks = ranks, .steps = 24, .folder = fmt::format("run{}", ranks)},
                   ", drawn = true, delays = true", "a run in which calls are delayed");
    require_shared_updates(watched);
    require_equal(watched, &SlotSeen::received, "gradients after finish_gradients");
    for (const auto& [replica, seen] : watched.seen) {
      double arrived = 0, wanted = 0;
      const std::vector<SlotSeen>& at = watched.seen.begin()->second.slots;
      for (std::size_t i = 0; i < seen.slots.size(); ++i) {
        for (std::size_t j = 0; j < seen.slots[i].own.size(); ++j) {
          const double own = seen.slots[i].own[j];
          arrived += own * at[i].received[j];
          wanted += own * own / ranks;
        }
      }
      const double share = arrived / wanted;
      if (share >= 0.3 && share <= 1.2) continue;
      fail(fmt::format(
          "over {} slots the gradients of replica {} of {} arrived {:.3g} times as large as in the "
          "mean over replicas; expected 1, or between 0.3 and 1.2 for a strategy that compresses",
          seen.slots.size(), replica, ranks, share));
    }
  }
}

void replicas_agree(Subject& subject) {
  for (const int ranks : {2, 4}) {
    const Watched watched =
        watch_well(subject, {.ranks = ranks, .folder = fmt::format("run{}", ranks)}, "", "a run");
    require_shared_updates(watched);
    require_equal(watched, &SlotSeen::weights, "weights");
  }
}

void keeps_equal_replicas(Subject& subject) {
  for (const int ranks : {1, 2, 4}) {
    const Watched watched = watch_well(
        subject,
        {.ranks = ranks, .steps = 12, .sets = {"optimizer.lr=0.0"}, .folder = fmt::format("run{}", ranks)},
        "", "a run with a rate of 0");
    for (const auto& [replica, seen] : watched.seen) {
      for (const SlotSeen& slot : seen.slots) {
        for (std::size_t j = 0; j < slot.weights.size(); ++j) {
          if (std::abs(slot.weights[j] - seen.start[j]) <= 1e-4 * (1e-2 + std::abs(seen.start[j]))) continue;
          fail(fmt::format(
              "replicas began with equal weights and learned nothing (rate 0), but after slot {} of {} ranks "
              "element {} of replica {} went from {} to {}",
              slot.t, ranks, j, replica, seen.start[j], slot.weights[j]));
        }
      }
    }
  }
}

void plans_purely(Subject& subject) {
  const Watched asked = watch_well(subject, {.ranks = 2, .folder = "asked"}, ", ask_plans = true",
                                   "a run in which plan() is asked more often");
  const Watched plain = watch_well(subject, {.ranks = 2, .folder = "plain"}, "", "a run");
  if (!subject.declares(TENON_CAP_NONDETERMINISTIC) && asked.result.state_hash != plain.result.state_hash)
    fail("asking plan() more often changed the run: it must have no effect");
}

void quiesces_quietly(Subject& subject) {
  subject.require_determinism();
  for (const int ranks : {1, 2, 4}) {
    const Watched often = watch_well(subject, {.ranks = ranks, .folder = fmt::format("often{}", ranks)},
                                     ", quiesces = true", "a run with quiesce() twice after each slot");
    const Watched plain =
        watch_well(subject, {.ranks = ranks, .folder = fmt::format("plain{}", ranks)}, "", "a run");
    if (often.result.weights_hash != plain.result.weights_hash) {
      fail(fmt::format(
          "quiesce() after each slot changed the weights on {} ranks: it finishes transfers in flight, and "
          "what "
          "they brought is applied when it would have been, or else each evaluation and each save changes "
          "training",
          ranks));
    }
  }
}

/// A set of its own is the one model of the run. A strategy without one evaluates the live weights: of
/// replicas that update alone they are each replica's own, of the others sync.replicas_agree compares them.
void evaluates_one_model(Subject& subject) {
  bool any = false;
  for (const int ranks : {2, 4}) {
    const Watched watched = watch_well(subject, {.ranks = ranks, .folder = fmt::format("run{}", ranks)},
                                       ", quiesces = true", "a run with quiesce() twice after each slot");
    const std::vector<SlotSeen>& first = watched.seen.begin()->second.slots;
    for (const auto& [replica, seen] : watched.seen) {
      for (std::size_t i = 0; i < std::min(first.size(), seen.slots.size()); ++i) {
        const std::vector<double>&mine = seen.slots[i].evaluated, &others = first[i].evaluated;
        any = any || !mine.empty();
        if (mine.size() != others.size()) {
          fail(fmt::format(
              "slot {}: evaluation_parameters() of replica {} of {} {} live(), those of replica 0 {}",
              seen.slots[i].t, replica, ranks, mine.empty() ? "are" : "are not",
              others.empty() ? "are" : "are not"));
        }
        for (std::size_t j = 0; j < mine.size(); ++j) {
          if (mine[j] == others[j]) continue;
          fail(
              fmt::format("slot {}: after quiesce() evaluation_parameters() of replica {} of {} differ from "
                          "replica 0's at element "
                          "{}: {} and {}. A set that is not live() is the one model of the run, which is "
                          "evaluated, exported and "
                          "hashed: make it equal on all replicas. Return live() if each replica's weights "
                          "are a model of its own",
                          seen.slots[i].t, replica, ranks, j, mine[j], others[j]));
        }
      }
    }
  }
  if (!any) not_applicable("it evaluates the live weights of each replica and declares no other model");
}

void bears_refusals(Subject& subject) {
  for (const int ranks : {2, 4}) {
    RunRequest request{.ranks = ranks, .steps = 9, .sets = {"precision={type = \"conformance_refusing\"}"}};
    request.folder = fmt::format("all{}", ranks);
    const Watched all = watch_well(subject, request, "", "a run in which all refuse some updates");
    if (all.seen.begin()->second.group == GradientGroup::kAllReplicas) {
      require_equal(all, &SlotSeen::weights, "weights after refused updates");
      continue;
    }
    request.sets = {"precision={type = \"conformance_refusing\", alone = true}", "run.deadline=2"};
    request.folder = fmt::format("alone{}", ranks);
    watch_well(subject, request, "", "a run in which replica 0 alone refuses some updates");
  }
}

void names_the_late_rank(Subject& subject) {
  constexpr double kDeadline = 1, kStall = 2.2;
  const Watched watched = watch(subject, {.ranks = 2, .sets = {fmt::format("run.deadline={}", kDeadline)}},
                                fmt::format(", stall_s = {:.1f}", kStall));
  const auto waiting = watched.seen.find(0);
  const double waited = waiting != watched.seen.end() ? waiting->second.longest_call_s : 0;
  if (waited > kDeadline + 0.8) {
    fail(fmt::format(
        "replica 1 was late by {} s and replica 0 waited {:.1f} s in one call; run.deadline is {} s: "
        "use Communicator::wait, which ends, and not a loop around done()",
        kStall, waited, kDeadline));
  }
  if (watched.result.status == "completed") return;  // no rank had to wait
  // The run's error is that of the rank that reported first, and "rank 1: " may merely say that it was
  // rank 1.
  const bool in_a_call = waiting != watched.seen.end() && !waiting->second.error.empty();
  const std::string& error = in_a_call ? waiting->second.error : watched.result.error;
  if (error.find("rank 1") == std::string::npos)
    fail("replica 1 was late, but the error does not name rank 1: " + error);
}

void repeats_its_traffic(Subject& subject) {
  subject.require_determinism();
  for (const int ranks : {2, 4}) {
    std::map<std::string, std::uint64_t> first;
    for (const char* folder : {"a", "b"}) {
      const Watched watched =
          watch_well(subject, {.ranks = ranks, .folder = fmt::format("{}{}", folder, ranks)},
                     ", delays = true", "a run");
      if (first.empty()) first = watched.result.bytes_by_purpose;
      for (const auto& [purpose, bytes] : watched.result.bytes_by_purpose) {
        if (first[purpose] == bytes) continue;
        fail(fmt::format("the same run twice on {} ranks sent {} and {} bytes for '{}'", ranks,
                         first[purpose], bytes, purpose));
      }
    }
  }
}

/// Runs in which a sum in the order of threads differs between rounds. False if the strategy refuses the
/// precision.
bool compare_threads(Subject& subject, const char* precision) {
  constexpr int kRounds = 3;
  constexpr double kPatience = 8;  // seconds after which each team runs once
  const auto begin = std::chrono::steady_clock::now();
  RunRequest request{.ranks = 2, .steps = 9};
  // The first layer alone has more than four blocks of weights.
  request.sets = {fmt::format("precision={{type = \"{}\"}}", precision),
                  "device.kernels=reference",
                  "data.fields=[\"x:real:5300\", \"t:real:1\"]",
                  "run.eval_every=0",
                  "recovery.type=none",
                  ""};
  RunResult first;
  for (const int threads : {1, 2, 4}) {
    for (int round = 0; round < (threads == 1 ? 1 : kRounds); ++round) {
      if (round > 0 && base::seconds_since(begin) > kPatience) break;
      request.sets.back() = fmt::format("device.threads={}", threads);
      request.folder = fmt::format("{}_{}_{}", precision, threads, round);
      RunResult result;
      try {
        result = subject.train(request);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kConfig) throw;
        result.exit_status = error.exit_status();
      }
      if (result.exit_status == static_cast<int>(ErrorKind::kConfig)) return false;
      if (result.status != "completed")
        fail(fmt::format("a run with {} threads in {} ended as {}: {}", threads, precision, result.status,
                         result.error));
      if (threads == 1) first = result;
      if (result.weights_hash == first.weights_hash && result.state_hash == first.state_hash) continue;
      fail(fmt::format(
          "a run in {} with device.threads = {} ends with weights_hash {} and state_hash {}, with one "
          "thread {} and {}. Results must have the same bits with any number of threads: keep one partial "
          "sum per fixed block of parallel_for and add them in the order of blocks",
          precision, threads, result.weights_hash, result.state_hash, first.weights_hash, first.state_hash));
    }
  }
  return true;
}

void runs_have_the_same_bits(Subject& subject) {
  subject.require_same_bits_on_threads();
  // Without f64, whose bits show more, f32 must do.
  bool any = false;
  for (const char* precision : {"fp64", "fp32"}) any = compare_threads(subject, precision) || any;
  if (!any) not_applicable("it refuses fp64 and fp32");
}

constexpr const char* kSyncKind = "sync/1";
constexpr Check kSyncChecks[] = {
    {"sync.plans_purely", kSyncKind,
     "plan() depends on configuration, seed, replica and t alone, and changes nothing", plans_purely, 30},
    {"sync.returns_the_mean", kSyncKind,
     "with shared updates finish_gradients leaves the mean over replicas, the same bits on all, however late "
     "some are",
     returns_the_mean, 30},
    {"sync.replicas_agree", kSyncKind,
     "with shared updates all replicas have the same weights after each slot", replicas_agree, 30},
    {"sync.keeps_equal_replicas", kSyncKind,
     "replicas that are equal and learn nothing stay as they are; what is written is touched",
     keeps_equal_replicas, 30},
    {"sync.quiesces_quietly", kSyncKind,
     "quiesce() may be called after any slot, twice, and changes no weight", quiesces_quietly, 40, false,
     "run.repeats"},
    {"sync.evaluates_one_model", kSyncKind,
     "after quiesce() evaluation_parameters() are equal on all replicas, or are the live weights",
     evaluates_one_model, 30},
    {"sync.bears_refusals", kSyncKind, "refused updates, of all replicas or of one, keep replicas together",
     bears_refusals, 30},
    {"sync.names_the_late_rank", kSyncKind,
     "no call waits longer than run.deadline, and the error names who was late", names_the_late_rank, 30},
    {"sync.same_bits_on_any_threads", kSyncKind,
     "runs with 1, 2 and 4 threads give the same bits, in every round", runs_have_the_same_bits, 60, false,
     "run.repeats"},
    {"sync.repeats_its_traffic", kSyncKind, "the bytes sent do not depend on time", repeats_its_traffic, 30},
};

}  // namespace

std::span<const Check> sync_checks() {
  return kSyncChecks;
}

}  // namespace tenon::conformance
