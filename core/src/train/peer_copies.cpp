#include "train/peer_copies.hpp"

#include "train/row_protocol.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace tenon::train {
namespace {

TensorView text_view(std::string& text) {
  return bytes_view(text.data(), text.size());
}

}  // namespace

std::unique_ptr<PeerCopies> PeerCopies::make(const RankContext& rank, const CommunicatorWatch& watch) {
  const Part<Recovery>& policy = rank.parts.recovery;
  auto* copies = policy.offered<MemoryCopies>();
  if (copies == nullptr) return nullptr;
  const auto& parallel = rank.world.settings.parallel;
  if (parallel.servers > 0) {
    fail_config(fmt::format(
        "recovery '{}' keeps copies of ranks in the memory of other ranks, and what servers hold is in "
        "none of them; set parallel.servers = 0",
        policy.id()));
  }
  const auto ranks = static_cast<int>(parallel.trainers());
  std::vector<std::vector<int>> all(static_cast<std::size_t>(ranks));
  for (int of = 0; of < ranks; ++of) {
    std::vector<int>& holders = all[static_cast<std::size_t>(of)];
    holders = policy.guarded(*copies)->holders(of);
    const bool known =
        std::all_of(holders.begin(), holders.end(), [&](int r) { return r >= 0 && r < ranks; });
    if (!known || !is_among(holders, of))
      fail_plugin(
          fmt::format("recovery '{}': the state of rank {} is to be held by ranks {}; expected ranks of this "
                      "run, itself among them",
                      policy.id(), of, fmt::join(holders, ", ")));
  }
  if (rank.world.place.survives)
    return std::unique_ptr<PeerCopies>(new PeerCopies(rank, *copies, watch, std::move(all)));
  if (ranks > 1) {
    rank.host.log(
        LogLevel::kWarning,
        "copies in the memory of other ranks are of use where ranks outlive each other: start them with "
        "tenon launch --restarts R. None are made");
  }
  return nullptr;
}

PeerCopies::PeerCopies(const RankContext& rank, MemoryCopies& copies, const CommunicatorWatch& watch,
                       std::vector<std::vector<int>> holders)
    : rank_(rank), copies_(copies), watch_(watch), holders_(std::move(holders)) {}

bool PeerCopies::due(const SaveMoment& moment) const {
  return rank_.parts.recovery.guarded(copies_)->copies_due(moment);
}

Communicator& PeerCopies::group() {
  if (group_ == nullptr) {
    std::vector<int> all(holders_.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    group_ =
        traced(rank_.world.transport->open(rank_.index, {all, "copies", Purpose::kRecovery, rank_.epoch}),
               watch_, all, "copies");
  }
  return *group_;
}

void PeerCopies::exchange(const HeldState& held) {
  Copies made;
  made.slot = held.slot;
  made.of[rank_.index] = pack(held);

  Communicator& group = this->group();
  std::vector<std::int64_t> sizes(holders_.size());
  sizes[static_cast<std::size_t>(rank_.index)] = static_cast<std::int64_t>(made.of[rank_.index].size());
  group.all_gather({sizes.data(), Shape{static_cast<std::int64_t>(sizes.size()), 1}, DType::kI64});
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(holders_.size()); ++rank) {
    if (rank == rank_.index || !is_among(holders_[static_cast<std::size_t>(rank)], rank_.index)) continue;
    std::string& copy = made.of[rank];
    copy.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
    requests.push_back(group.start_receive(text_view(copy), rank, 0));
  }
  for (const int holder : holders_[static_cast<std::size_t>(rank_.index)]) {
    if (holder != rank_.index)
      requests.push_back(group.start_send(text_view(made.of[rank_.index]), holder, 0));
  }
  for (const Request request : requests) group.wait(request);
  // Until all have all of it, the copies before these are what everybody can go back to.
  group.barrier();
  rank_.world.survival.older = std::exchange(rank_.world.survival.newest, std::move(made));
}

std::string PeerCopies::text() const {
  std::string text;
  for (const Copies* set : {&rank_.world.survival.newest, &rank_.world.survival.older}) {
    if (set->slot < 0) continue;
    text += std::to_string(set->slot);
    for (const auto& [rank, bytes] : set->of) text += fmt::format(" {}", rank);
    text += "\n";
  }
  return text;
}

std::optional<CopiesLeft> PeerCopies::find(const std::vector<std::string>& said) const {
  std::map<std::int64_t, std::map<int, int>> givers;  // slot, whose copy, lowest rank that has it
  for (std::size_t r = 0; r < said.size(); ++r) {
    std::istringstream lines(said[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::int64_t slot = 0;
      words >> slot;
      for (int of = 0; words >> of;) {
        int& giver = givers[slot].try_emplace(of, static_cast<int>(r)).first->second;
        if (of == static_cast<int>(r)) giver = of;  // its own, which need not travel
      }
    }
  }
  for (auto set = givers.rbegin(); set != givers.rend(); ++set) {
    if (set->second.size() == holders_.size()) return CopiesLeft{set->first, set->second};
  }
  return std::nullopt;
}

HeldState PeerCopies::fetch(const CopiesLeft& left) {
  Survival& survival = rank_.world.survival;
  const Copies& set = survival.newest.slot == left.slot ? survival.newest : survival.older;
  Communicator& group = this->group();
  std::string mine;
  for (const auto& [rank, giver] : left.givers) {
    std::int64_t size = 0;
    if (giver == rank_.index) size = static_cast<std::int64_t>(set.of.at(rank).size());
    group.broadcast({&size, Shape{1}, DType::kI64}, giver);
    if (giver == rank) {
      if (rank == rank_.index) mine = set.of.at(rank);
    } else if (rank == rank_.index) {
      mine.resize(static_cast<std::size_t>(size));
      group.receive(text_view(mine), giver, 0);
    } else if (giver == rank_.index) {
      std::string copy = set.of.at(rank);
      group.send(text_view(copy), rank, 0);
    }
  }
  return unpack(mine);
}

}  // namespace tenon::train
