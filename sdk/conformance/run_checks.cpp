// Checks of any component in whole runs: they complete with 1, 2 and 4 ranks, reproduce their bits, also
// after a stop, and do not allocate in the steady state. Several ranks take part where each can have a device
// of its own.
#include "allocation_watch.hpp"
#include "subject.hpp"
#include "transport_rig.hpp"

#include "config/words.hpp"
#include "identities/stated.hpp"

#include <tenon/dataset.hpp>
#include <tenon/on_policy.hpp>

#include <fmt/format.h>

#include <malloc.h>

#include <cmath>

namespace tenon::conformance {
namespace {

constexpr int kWorlds[] = {1, 2, 4};
/// For checks that train several times: four ranks also cover the case of two.
constexpr int kTwice[] = {1, 4};

std::string on_ranks(int ranks) {
  return fmt::format("on {} rank{}", ranks, ranks == 1 ? "" : "s");
}

/// The model of the kit is none from which samples could be drawn.
void require_samples(Subject& subject) {
  if (subject.kind() != Dataset::kKind) return;
  const testing::Made<Dataset> data = subject.make<Dataset>();
  if (data->query(OnPolicyDataset::kId) != nullptr)
    not_applicable("its samples are drawn from a language model");
}

void completes(Subject& subject) {
  require_samples(subject);
  require_threads(subject);
  for (const int ranks : kWorlds) {
    if (!subject.has_room(ranks)) continue;
    const RunResult result =
        subject.train_well({.ranks = ranks, .folder = fmt::format("run{}", ranks)}, "a run of 8 slots");
    for (const char* metric : {"train/loss", "val/loss"}) {
      const auto found = result.metrics.find(metric);
      if (found == result.metrics.end()) fail(fmt::format("a run {} reports no {}", on_ranks(ranks), metric));
      if (!std::isfinite(found->second))
        fail(fmt::format("{} {} is {}, expected a finite number", metric, on_ranks(ranks), found->second));
    }
  }
}

void same_hashes(const RunResult& a, const RunResult& b, const std::string& what) {
  if (a.weights_hash != b.weights_hash)
    fail(fmt::format("{}: weights_hash {} and {}", what, a.weights_hash, b.weights_hash));
  if (a.state_hash != b.state_hash) {
    fail(fmt::format(
        "{}: equal weights, but state_hash {} and {}: something that a component carries is not the same",
        what, a.state_hash, b.state_hash));
  }
}

/// New memory of the heap holds a pattern while this lives, as a float or a double no small number: members
/// that were never written have other values than in a run before. What that run left allocated moves later
/// objects.
class OtherHeap {
 public:
  OtherHeap() { ::mallopt(M_PERTURB, ~kNew & 0xff); }
  OtherHeap(const OtherHeap&) = delete;
  OtherHeap& operator=(const OtherHeap&) = delete;
  ~OtherHeap() { ::mallopt(M_PERTURB, 0); }

 private:
  static constexpr int kNew = 0x3f;  ///< the complement of what mallopt takes, which is for freed memory
};

void repeats(Subject& subject) {
  require_samples(subject);
  subject.require_determinism();
  require_threads(subject);
  for (const int ranks : kTwice) {
    if (!subject.has_room(ranks)) continue;
    const RunResult first =
        subject.train_well({.ranks = ranks, .folder = fmt::format("a{}", ranks)}, "a run");
    const OtherHeap heap;
    const RunResult second =
        subject.train_well({.ranks = ranks, .folder = fmt::format("b{}", ranks)}, "the run again");
    same_hashes(first, second, "the same run twice " + on_ranks(ranks) + " gives other bits");
  }
}

void resumes(Subject& subject) {
  require_samples(subject);
  subject.require_determinism();
  require_threads(subject);
  for (const int ranks : kTwice) {
    if (!subject.has_room(ranks)) continue;
    const RunResult whole =
        subject.train_well({.ranks = ranks, .folder = fmt::format("whole{}", ranks)}, "a run");
    const std::string folder = fmt::format("cut{}", ranks);
    subject.train_well({.ranks = ranks, .folder = folder, .stop_after = 5}, "a run that is asked to stop");
    if (!std::filesystem::exists(subject.scratch() / folder / "1" / "checkpoints"))
      not_applicable("this recovery saves nothing");
    const RunResult resumed =
        subject.train_well({.ranks = ranks, .folder = folder, .resume = true}, "the stopped run, resumed,");
    same_hashes(
        whole, resumed,
        "a run that was stopped and resumed " + on_ranks(ranks) +
            " ends with other bits than one that ran through (visit all that is carried over in state())");
  }
}

bool runs_on_the_host(Subject& subject) {
  const MemorySpace space =
      subject.kind() == Device::kKind ? subject.make<Device>()->space() : subject.device().space();
  return space == MemorySpace::kHost;
}

void allocates_nothing(Subject& subject) {
  require_samples(subject);
  require_threads(subject);
  if (!runs_on_the_host(subject))
    not_applicable("what launches take from the host's heap is the device's own affair");
  const AllocationWatch* const watch = allocation_watch();
  if (watch == nullptr) not_applicable("allocations cannot be counted in a build with a sanitizer");
  subject.train_well({.ranks = 2,
                      .steps = 16,
                      .sets = {"run.eval_every=0", "recovery.type=none"},
                      .count_allocations = true},
                     "a run");
  const std::string stack = first_allocation_from(*watch, subject.file().string());
  if (!stack.empty()) {
    fail(
        "it asks the heap for memory in a steady slot; prepare buffers before the first one. First of them:" +
        stack);
  }
}

/// Why a configuration cannot be built; "" if it can.
std::string refusal_of(Subject& subject, const Config& config) {
  try {
    subject.check(config);
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    return brief(error.what());
  }
}

void keeps_identities(Subject& subject) {
  const RunRequest request{.ranks = subject.has_room(2) ? 2 : 1};
  const Config base = subject.run_config(request);
  const std::string place(config::kind_name(subject.kind()));
  const Value* const table = base.find(place);
  const Value* const type = table != nullptr && table->is_table() ? table->find("type") : nullptr;
  if (type == nullptr || !(*type == Value(subject.type())))
    not_applicable(fmt::format("a run has no one table of kind {}", subject.kind()));
  const auto files = make_posix_files();
  std::string refused = "it states none (<tenon/identities.hpp>)";
  int held = 0;
  for (const identities::Stated& identity :
       identities::stated_by(subject.registry(), subject.host(), subject.kind(), *table)) {
    const identities::Sides sides = identities::sides_of(base, place, identity);
    std::string text = refusal_of(subject, sides.own);
    if (text.empty()) text = refusal_of(subject, sides.other);
    if (!text.empty()) {
      refused = "the kit's run is refused with what it states: " + text;
      continue;
    }
    const auto train = [&](const Config& side, const char* name) {
      return subject.train(side, {.ranks = request.ranks, .folder = fmt::format("{}{}", name, held)});
    };
    const RunResult own = train(sides.own, "own"), other = train(sides.other, "other");
    const std::string found = identities::difference(*files, own, other, identity.within);
    if (!found.empty()) fail(fmt::format("it states \"{}\", but {}", identity.why, found));
    ++held;
  }
  if (held == 0) not_applicable(refused);
}

constexpr Check kRunChecks[] = {
    {"run.completes", "", "runs of 1, 2 and 4 ranks end well, with finite losses", completes, 40},
    {"run.repeats", "", "the same run twice gives the same bits", repeats, 60, false, "run.completes"},
    {"run.keeps_identities", "", "runs that an identity says end alike do", keeps_identities, 60, false,
     "component.states_identities"},
    {"run.resumes", "", "a stopped and resumed run gives the bits of one that ran through", resumes, 60,
     false, "run.repeats"},
    {"run.allocates_nothing", "", "a slot in the steady state takes nothing from the heap", allocates_nothing,
     40, true, "run.completes"},
};

}  // namespace

std::span<const Check> run_checks() {
  return kRunChecks;
}

}  // namespace tenon::conformance
