// Rounds of one lane on the server of the control plane: every member brings a text, and all get all of them.
#pragma once

#include "control/control_wire.hpp"

#include <utility>  // which Boost 1.74 forgets

#include <boost/asio.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

TENON_ABI_BEGIN

class ControlConversation {
 public:
  using Send = std::function<void(int rank, const ControlRecord& answer)>;
  ControlConversation(boost::asio::io_context& io, ControlLane lane, Send send);

  /// The text of `rank`, one of the first `members`. The round ends with the last text, or `deadline_s` after
  /// the first, with the names of the late ranks. Throws Error(kRun) for a rank that is not a member.
  void take(int rank, ControlRecord record, int members, double deadline_s);

 private:
  struct Text {
    std::uint32_t id;
    std::string text;
  };
  void await(double deadline_s);
  void end(ControlType type, const std::string& text);
  std::vector<int> missing() const;

  const ControlLane lane_;
  const Send send_;
  boost::asio::steady_timer timer_;
  std::vector<std::optional<Text>> texts_;  // by rank
  std::size_t arrived_ = 0;
  std::uint64_t round_ = 0;
};

TENON_ABI_END
