// Rounds of texts (control_conversation.hpp).
#include "control/control_conversation.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <chrono>

TENON_ABI_BEGIN

namespace asio = boost::asio;

ControlConversation::ControlConversation(asio::io_context& io, ControlLane lane, Send send)
    : lane_(lane), send_(std::move(send)), timer_(io) {}

void ControlConversation::take(int rank, ControlRecord record, int members, double deadline_s) {
  if (rank >= members)
    fail_run(fmt::format("control plane: rank {} has no part in {}", rank, control_lane_name(lane_)));
  texts_.resize(static_cast<std::size_t>(members));
  auto& mine = texts_[static_cast<std::size_t>(rank)];
  if (mine) fail_run(fmt::format("control plane: rank {} exchanges twice in one round", rank));
  mine = Text{record.id, std::move(record.text)};
  if (++arrived_ == 1) await(deadline_s);
  if (arrived_ < texts_.size()) return;
  std::vector<std::string> all;
  for (const auto& entry : texts_) all.push_back(entry->text);
  const std::string joined = join_texts(all);
  if (joined.size() <= kControlTextBytes) return end(ControlType::kAnswer, joined);
  end(ControlType::kError,
      fmt::format("control plane: {}: the texts of {} ranks have {} bytes together, at most {} are sent",
                  control_lane_name(lane_), members, joined.size(), kControlTextBytes));
}

void ControlConversation::await(double deadline_s) {
  timer_.expires_after(
      std::chrono::duration_cast<asio::steady_timer::duration>(std::chrono::duration<double>(deadline_s)));
  timer_.async_wait([this, deadline_s, round = round_](boost::system::error_code error) {
    if (error || round_ != round) return;
    end(ControlType::kLate, fmt::format("{} did not join {} within {:g} s", ranks_text(missing()),
                                        control_lane_name(lane_), deadline_s));
  });
}

std::vector<int> ControlConversation::missing() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < texts_.size(); ++rank) {
    if (!texts_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void ControlConversation::end(ControlType type, const std::string& text) {
  timer_.cancel();
  ++round_;
  arrived_ = 0;
  for (std::size_t rank = 0; rank < texts_.size(); ++rank) {
    const auto entry = std::exchange(texts_[rank], std::nullopt);
    if (!entry) continue;
    send_(static_cast<int>(rank),
          {type, static_cast<std::uint8_t>(lane_), static_cast<int>(rank), entry->id, 0, text});
  }
}

TENON_ABI_END
