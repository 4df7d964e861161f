// Copies of ranks' state in the memory of other ranks: how they are made at a slot boundary, and how all
// ranks go back to them when some have died.
#include "train/rank.hpp"
#include "train/row_protocol.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace tenon::train {
namespace {

TensorView text_view(std::string& text) {
  return bytes_view(text.data(), text.size());
}

}  // namespace

void Rank::bind_copies() {
  copies_ = static_cast<MemoryCopies*>(parts_->recovery->query(MemoryCopies::kId));
  if (copies_ == nullptr) return;
  const auto& parallel = world_.settings.parallel;
  if (parallel.servers > 0) {
    fail_config(fmt::format(
        "recovery '{}' keeps copies of ranks in the memory of other ranks, and what servers hold is in "
        "none of them; set parallel.servers = 0",
        parts_->recovery.id()));
  }
  const auto ranks = static_cast<int>(parallel.trainers());
  holders_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int>& holders = holders_[static_cast<std::size_t>(rank)];
    holders = parts_->recovery.guarded(*copies_)->holders(rank);
    const bool known =
        std::all_of(holders.begin(), holders.end(), [&](int r) { return r >= 0 && r < ranks; });
    if (!known || !is_among(holders, rank))
      fail_plugin(
          fmt::format("recovery '{}': the state of rank {} is to be held by ranks {}; expected ranks of this "
                      "run, itself among them",
                      parts_->recovery.id(), rank, fmt::join(holders, ", ")));
  }
  if (world_.place.survives) return;
  copies_ = nullptr;
  if (ranks == 1) return;
  host_.log(LogLevel::kWarning,
            "copies in the memory of other ranks are of use where ranks outlive each other: start them with "
            "tenon launch --restarts R. None are made");
}

Communicator& Rank::copies_group() {
  if (copies_group_ == nullptr) {
    std::vector<int> all(holders_.size());
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<int>(r);
    copies_group_ = traced(world_.transport->open(rank_, {all, "copies", Purpose::kRecovery, epoch_}), watch_,
                           all, "copies");
  }
  return *copies_group_;
}

/// Collective, at a slot boundary whose other business is done.
void Rank::copy_to_peers() {
  const double began_s = world_.clock->now();
  const PartScope part(&account_, TimePart::kSave);
  const LedgerScope entry(ledger(), OverheadLedger::Entry::kSave);
  const SpanScope span(&spans_, "save", "copies");
  HeldState held = held_now(nullptr);
  held.boundary_done = true;
  Copies made;
  made.slot = held.slot;
  made.of[rank_] = pack(held);

  Communicator& group = copies_group();
  std::vector<std::int64_t> sizes(holders_.size());
  sizes[static_cast<std::size_t>(rank_)] = static_cast<std::int64_t>(made.of[rank_].size());
  group.all_gather({sizes.data(), Shape{static_cast<std::int64_t>(sizes.size()), 1}, DType::kI64});
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(holders_.size()); ++rank) {
    if (rank == rank_ || !is_among(holders_[static_cast<std::size_t>(rank)], rank_)) continue;
    std::string& copy = made.of[rank];
    copy.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
    requests.push_back(group.start_receive(text_view(copy), rank, 0));
  }
  for (const int holder : holders_[static_cast<std::size_t>(rank_)]) {
    if (holder != rank_) requests.push_back(group.start_send(text_view(made.of[rank_]), holder, 0));
  }
  for (const Request request : requests) group.wait(request);
  // Until all have all of it, the copies before these are what everybody can go back to.
  group.barrier();
  world_.survival.older = std::exchange(world_.survival.newest, std::move(made));
  const double seconds = world_.clock->now() - began_s;
  stall_s_ += seconds;
  lines_.add(held.slot, Split::kTrain, "memory_copy_s", seconds);
}

/// "S r r r" of each set of copies, one a line.
std::string Rank::copies_text() const {
  std::string text;
  for (const Copies* set : {&world_.survival.newest, &world_.survival.older}) {
    if (set->slot < 0) continue;
    text += std::to_string(set->slot);
    for (const auto& [rank, bytes] : set->of) text += fmt::format(" {}", rank);
    text += "\n";
  }
  return text;
}

/// The newest slot of which a copy of every rank is left, by what each rank said.
std::optional<CopiesLeft> Rank::find_copies(const std::vector<std::string>& said) const {
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

/// In place of reading a checkpoint.
void Rank::restore_from_peers() {
  const CopiesLeft& left = *world_.survivors->copies;
  Survival& survival = world_.survival;
  const Copies& set = survival.newest.slot == left.slot ? survival.newest : survival.older;
  Communicator& group = copies_group();
  std::string mine;
  for (const auto& [rank, giver] : left.givers) {
    std::int64_t size = 0;
    if (giver == rank_) size = static_cast<std::int64_t>(set.of.at(rank).size());
    group.broadcast({&size, Shape{1}, DType::kI64}, giver);
    if (giver == rank) {
      if (rank == rank_) mine = set.of.at(rank);
    } else if (rank == rank_) {
      mine.resize(static_cast<std::size_t>(size));
      group.receive(text_view(mine), giver, 0);
    } else if (giver == rank_) {
      std::string copy = set.of.at(rank);
      group.send(text_view(copy), rank, 0);
    }
  }
  HeldState held = unpack(mine);
  take_back(held);
  saves_->set_newest(world_.restored_slot <= left.slot ? world_.restored_slot : -1);
  begin_again_after_divergence();
  counters_.wall_s = world_.restored_wall_s;
  next_slot_ = first_slot_ = counters_.slot;
  copy_to_peers();  // who is new holds nothing of the others yet
}

}  // namespace tenon::train
