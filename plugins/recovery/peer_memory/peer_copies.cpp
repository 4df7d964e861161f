#include "peer_copies.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace tenon::recovery_peer_memory {
namespace {

TensorView text_view(std::string& text) {
  return {text.data(), Shape{static_cast<std::int64_t>(text.size())}, DType::kU8};
}

}  // namespace

PeerCopies::Kept& PeerCopies::kept() {
  std::shared_ptr<void>& memory = host_.kept("peer_memory");
  if (memory == nullptr) memory = std::make_shared<Kept>();
  return *static_cast<Kept*>(memory.get());
}

Communicator& PeerCopies::group() {
  if (group_ == nullptr) group_ = host_.open("copies");
  return *group_;
}

bool PeerCopies::holds(int holder, int of) const {
  const std::vector<int>& holders = holders_[static_cast<std::size_t>(of)];
  return std::find(holders.begin(), holders.end(), holder) != holders.end();
}

void PeerCopies::exchange(std::int64_t slot) {
  Set made;
  made.slot = slot;
  std::string& mine = made.of[rank_] = host_.capture();

  Communicator& group = this->group();
  std::vector<std::int64_t> sizes(holders_.size());
  sizes[static_cast<std::size_t>(rank_)] = static_cast<std::int64_t>(mine.size());
  group.all_gather({sizes.data(), Shape{static_cast<std::int64_t>(sizes.size()), 1}, DType::kI64});
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(holders_.size()); ++rank) {
    if (rank == rank_ || !holds(rank_, rank)) continue;
    std::string& copy = made.of[rank];
    copy.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]));
    requests.push_back(group.start_receive(text_view(copy), rank, 0));
  }
  for (const int holder : holders_[static_cast<std::size_t>(rank_)]) {
    if (holder != rank_) requests.push_back(group.start_send(text_view(mine), holder, 0));
  }
  for (const Request request : requests) group.wait(request);
  // Until all ranks have all copies, the previous copies are the common roll-back point.
  group.barrier();
  Kept& memory = kept();
  memory.older = std::exchange(memory.newest, std::move(made));
}

std::string PeerCopies::text() {
  std::string text;
  const Kept& memory = kept();
  for (const Set* set : {&memory.newest, &memory.older}) {
    if (set->slot < 0) continue;
    text += std::to_string(set->slot);
    for (const auto& [rank, bytes] : set->of) text += " " + std::to_string(rank);
    text += "\n";
  }
  return text;
}

std::int64_t PeerCopies::find() {
  std::map<std::int64_t, std::map<int, int>> givers;  // slot, owner of the copy, lowest rank that has it
  const std::vector<std::string> said = host_.gather(text());
  for (std::size_t r = 0; r < said.size(); ++r) {
    std::istringstream lines(said[r]);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::int64_t slot = 0;
      words >> slot;
      for (int of = 0; words >> of;) {
        int& giver = givers[slot].try_emplace(of, static_cast<int>(r)).first->second;
        if (of == static_cast<int>(r)) giver = of;  // its own copy, which needs no transfer
      }
    }
  }
  for (auto set = givers.rbegin(); set != givers.rend(); ++set) {
    if (set->second.size() != holders_.size()) continue;
    givers_ = set->second;
    return set->first;
  }
  return -1;
}

void PeerCopies::bring_back(std::int64_t slot) {
  const Kept& memory = kept();
  const Set& set = memory.newest.slot == slot ? memory.newest : memory.older;
  Communicator& group = this->group();
  std::string mine;
  for (const auto& [rank, giver] : givers_) {
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
  host_.restore(mine);
}

}  // namespace tenon::recovery_peer_memory
