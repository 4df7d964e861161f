// The server of the control plane (control_server.hpp): rounds of texts, connections, and the hub. Everything
// but a few atomics belongs to its thread.
#include "control/control_server.hpp"

#include "base/at.hpp"
#include "control/control_wire.hpp"

#include <tenon/error.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <utility>  // which Boost 1.74 forgets

#include <boost/asio.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

TENON_ABI_BEGIN

namespace asio = boost::asio;
using asio::ip::tcp;

// Rounds of one lane on the server of the control plane: every member brings a text, and all get all of them.

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

ControlConversation::ControlConversation(asio::io_context& io, ControlLane lane, Send send)
    : lane_(lane), send_(std::move(send)), timer_(io) {}

void ControlConversation::take(int rank, ControlRecord record, int members, double deadline_s) {
  if (rank >= members)
    fail_run(fmt::format("control plane: rank {} has no part in {}", rank, control_lane_name(lane_)));
  texts_.resize(members);
  auto& mine = texts_[rank];
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

// One connection of the server of the control plane: reads records, writes records in order, and closes when
// a peer does not name its rank.

class ControlSession : public std::enable_shared_from_this<ControlSession> {
 public:
  /// Events of a connection, all on the thread of its context.
  class Events {
   public:
    virtual ~Events() = default;
    virtual void on_record(ControlSession& session, ControlRecord record) = 0;
    /// It closed, or broke.
    virtual void on_lost(ControlSession& session) = 0;
    /// It sent bytes that are no record.
    virtual void on_bad(ControlSession& session, const std::string& why) = 0;
  };

  /// A peer that does not become a rank within `hello_s` seconds is closed.
  ControlSession(boost::asio::ip::tcp::socket socket, Events& events, double hello_s);

  void start();
  void send(const ControlRecord& record);
  void close();
  bool is_open() const { return socket_.is_open(); }

  int rank = -1;  ///< before its hello
  bool bye = false;

 private:
  struct Outgoing {
    ControlHeader header;
    std::string text;
  };

  void read_header();
  void read_text();
  void write();

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer hello_;
  Events& events_;
  const double hello_s_;
  ControlHeader header_{};
  ControlRecord record_;
  std::deque<Outgoing> out_;
};
using ControlSessionPtr = std::shared_ptr<ControlSession>;

namespace {

/// Longest text before a peer has named its rank, so that strangers get little memory.
constexpr std::uint32_t kHelloTextBytes = 4096;

}  // namespace

ControlSession::ControlSession(tcp::socket socket, Events& events, double hello_s)
    : socket_(std::move(socket)), hello_(socket_.get_executor()), events_(events), hello_s_(hello_s) {
  boost::system::error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
}

void ControlSession::start() {
  hello_.expires_after(
      std::chrono::duration_cast<asio::steady_timer::duration>(std::chrono::duration<double>(hello_s_)));
  hello_.async_wait([this, kept = weak_from_this()](boost::system::error_code error) {
    const auto self = kept.lock();
    if (self && !error && rank < 0) close();
  });
  read_header();
}

void ControlSession::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void ControlSession::read_header() {
  asio::async_read(socket_, asio::buffer(header_),
                   [this, self = shared_from_this()](boost::system::error_code error, std::size_t) {
                     if (error) return events_.on_lost(*this);
                     std::uint32_t text_bytes = 0;
                     try {
                       record_ = decode_header(header_, text_bytes);
                     } catch (const Error& bad) {
                       return events_.on_bad(*this, bad.what());
                     }
                     if (rank < 0 && text_bytes > kHelloTextBytes)
                       return events_.on_bad(*this, "its hello is too long");
                     record_.text.resize(text_bytes);
                     read_text();
                   });
}

void ControlSession::read_text() {
  asio::async_read(socket_, asio::buffer(record_.text),
                   [this, self = shared_from_this()](boost::system::error_code error, std::size_t) {
                     if (error) return events_.on_lost(*this);
                     events_.on_record(*this, std::exchange(record_, {}));
                     if (socket_.is_open()) read_header();
                   });
}

void ControlSession::send(const ControlRecord& record) {
  if (!socket_.is_open()) return;
  out_.push_back({encode_header(record), record.text});
  if (out_.size() == 1) write();
}

void ControlSession::write() {
  const Outgoing& next = out_.front();
  const std::array<asio::const_buffer, 2> parts{asio::buffer(next.header), asio::buffer(next.text)};
  asio::async_write(socket_, parts,
                    [this, self = shared_from_this()](boost::system::error_code error, std::size_t) {
                      if (error) return;  // the reading side reports it
                      out_.pop_front();
                      if (!out_.empty()) write();
                    });
}

// The hub.

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kEndKnownWithin{1000};
constexpr milliseconds kEndAskedEvery{20};
constexpr milliseconds kLeaveAfterFailureWithin{2000};
constexpr milliseconds kDeathKnownWithin{150};
constexpr int kLooksForADeath = 10;
constexpr milliseconds kAcceptAgainAfter{50};

asio::steady_timer::duration seconds(double value) {
  return std::chrono::duration_cast<asio::steady_timer::duration>(std::chrono::duration<double>(value));
}

}  // namespace

struct ControlServer::Impl final : private ControlSession::Events {
  explicit Impl(ControlServerSpec given)
      : spec(std::move(given)),
        state(spec.ranks),
        acceptor(io),
        accept_again(io),
        sessions(static_cast<std::size_t>(spec.ranks)),
        begun(static_cast<std::size_t>(spec.ranks), -1),
        holds(static_cast<std::size_t>(spec.ranks), false) {
    for (int lane = 0; lane < kControlLanes; ++lane) {
      lanes.emplace_back(io, static_cast<ControlLane>(lane), [this](int rank, const ControlRecord& answer) {
        send(base::at(sessions, rank), answer);
      });
    }
    try {
      const tcp::endpoint endpoint(asio::ip::make_address(spec.address), spec.port);
      acceptor.open(endpoint.protocol());
      acceptor.set_option(tcp::acceptor::reuse_address(true));
      acceptor.bind(endpoint);
      acceptor.listen();
      port = acceptor.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      fail_run(
          fmt::format("the control plane cannot listen on {}:{}: {}; choose another address or port "
                      "(--control, TENON_CONTROL)",
                      spec.address, spec.port, error.code().message()));
    }
    accept();
    thread = std::thread([this] { io.run(); });
  }

  // Answers that are on their way arrive: the last to leave is the server.
  ~Impl() override {
    const auto timer = std::make_shared<asio::steady_timer>(io);
    asio::post(io, [this, timer] {
      closing = true;
      timer->expires_after(stopped() ? asio::steady_timer::duration(kLeaveAfterFailureWithin)
                                     : seconds(spec.deadline_s));
      timer->async_wait([this](boost::system::error_code) { io.stop(); });
      stop_when_empty();
    });
    thread.join();
  }

  void stop_when_empty() {
    if (!closing) return;
    for (const ControlSessionPtr& session : sessions) {
      if (session && session->is_open()) return;
    }
    io.stop();
  }

  // ---- connections

  void accept() {
    acceptor.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return accept_later();
      ControlSession::Events& events = *this;  // a private base
      std::make_shared<ControlSession>(std::move(socket), events, spec.hello_s)->start();
      accept();
    });
  }

  // A peer that went away at once, or no file descriptor left: the next one may be a rank.
  void accept_later() {
    accept_again.expires_after(kAcceptAgainAfter);
    accept_again.async_wait([this](boost::system::error_code error) {
      if (!error) accept();
    });
  }

  static void send(const ControlSessionPtr& session, const ControlRecord& record) {
    if (session) session->send(record);
  }

  void on_bad(ControlSession& session, const std::string& why) override {
    if (session.rank >= 0) fail(session.rank, 1, "the control plane could not read what it sent: " + why);
    session.close();
  }

  void on_lost(ControlSession& session) override {
    session.close();
    stop_when_empty();
    if (session.rank >= 0) set_held(session.rank, false);
    if (session.rank < 0 || session.bye || stopped()) return;
    ++dying;
    ask_how_it_ended(session.rank, std::make_shared<asio::steady_timer>(io),
                     std::chrono::steady_clock::now() + kEndKnownWithin);
  }

  void ask_how_it_ended(int rank, const std::shared_ptr<asio::steady_timer>& timer,
                        std::chrono::steady_clock::time_point until) {
    std::string how = spec.describe_exit ? spec.describe_exit(rank) : std::string();
    if (how.empty() && spec.describe_exit && std::chrono::steady_clock::now() < until) {
      timer->expires_after(kEndAskedEvery);
      timer->async_wait([this, rank, timer, until](boost::system::error_code error) {
        if (!error) ask_how_it_ended(rank, timer, until);
      });
      return;
    }
    if (how.empty())
      how = "its process is gone: its connection to the control plane closed without a goodbye";
    --dying;
    const std::int64_t slot = base::at(begun, rank);
    const std::string text =
        slot < 0 ? how + ", before its first slot" : fmt::format("{}, in slot {}", how, slot);
    if (spec.outlives_deaths) return interrupt(rank, text);
    fail(rank, 1, text);
  }

  // ---- what ranks say

  void on_record(ControlSession& session, ControlRecord record) override {
    if (session.rank < 0) return greet(session, record);
    const int rank = session.rank;
    const auto answer = [&](ControlType type, std::int64_t value, std::string text = {}) {
      session.send({type, record.lane, rank, record.id, value, std::move(text)});
    };
    if (record.type == ControlType::kHeld) return set_held(rank, true);
    // The rank sent it before it heard of the interruption; a vote must not end a round after it.
    if (!reason.empty() && record.type != ControlType::kBye) return;
    try {
      switch (record.type) {
        case ControlType::kBeginSlot:
          base::at(begun, rank) = record.value;
          slot_begun = true;
          return answer(ControlType::kAnswer, state.begin_slot(rank, record.value));
        case ControlType::kRequest:
          return answer(ControlType::kAnswer, request(static_cast<std::uint32_t>(record.value)));
        case ControlType::kVote:
          return vote(rank, record);
        case ControlType::kExchange:
          return exchange(rank, std::move(record));
        case ControlType::kFail:
          if (spec.outlives_deaths &&
              (record.lane == 1 || record.value == static_cast<int>(ErrorKind::kDeviceLost)))
            return interrupt(rank, record.text);
          return fail_soon(rank, static_cast<int>(record.value), record.text, kLooksForADeath);
        case ControlType::kBye:
          session.bye = true;
          return;
        default:
          return on_bad(session, fmt::format("record type {}", static_cast<int>(record.type)));
      }
    } catch (const Error& error) {
      answer(ControlType::kError, error.exit_status(), error.what());
    }
  }

  void greet(ControlSession& session, const ControlRecord& hello) {
    const auto refuse = [&](std::string why) {
      session.send({ControlType::kRefused, 0, hello.rank, hello.id, 0, std::move(why)});
      session.bye = true;
    };
    const auto refuse_all = [&](const std::string& why) {
      refuse(why);
      fail(hello.rank, 2, why);
    };
    const auto line = hello.text.find('\n');
    if (hello.type != ControlType::kHello || line == std::string::npos) return on_bad(session, "no hello");
    if (hello.text.substr(0, line) != spec.token) {
      return refuse("it belongs to another run (the token differs)");
    }
    const auto end = hello.text.find('\n', line + 1);
    const std::string program = hello.text.substr(line + 1, end == std::string::npos ? end : end - line - 1);
    if (hello.rank < 0 || hello.rank >= spec.ranks) {
      return refuse(fmt::format("there is no rank {}; ranks are 0 ... {}", hello.rank, spec.ranks - 1));
    }
    const auto world = static_cast<std::int32_t>(hello.value & 0xFFFFFFFF);
    const auto given_trainers = static_cast<std::int32_t>(hello.value >> 32);
    if (world != spec.ranks || given_trainers < 1 || given_trainers > world) {
      return refuse_all(fmt::format(
          "its configuration makes a world of {} ranks, but {} processes were started", world, spec.ranks));
    }
    if (version.empty()) {
      version = program;
      trainers = given_trainers;
      // The process that runs the server need not have read the configuration.
      const double deadline =
          end == std::string::npos ? 0 : std::strtod(hello.text.c_str() + end + 1, nullptr);
      if (deadline > 0) spec.deadline_s = deadline;
      state.limit_voters(trainers);
    }
    if (program != version) {
      return refuse_all(
          fmt::format("it is '{}', but another rank is '{}'; use one build everywhere", program, version));
    }
    ControlSessionPtr& seat = base::at(sessions, hello.rank);
    if (seat && seat->is_open()) return refuse(fmt::format("there is a rank {} already", hello.rank));
    seat = session.shared_from_this();
    session.rank = hello.rank;
    session.send({ControlType::kWelcome, 0, hello.rank, hello.id, spec.ranks, {}});
    if (state.failed()) session.send(failure_record());
    if (!reason.empty()) session.send(interruption_record());
  }

  /// Tells all ranks of a requested end, also those in the middle of something long, such as an evaluation.
  std::int64_t request(std::uint32_t actions) {
    const std::int64_t slot = state.request(actions);
    if ((actions & kControlInterrupt) != 0) {
      for (const ControlSessionPtr& session : sessions) send(session, {ControlType::kAsked, 0, -1, 0, 0, {}});
    }
    return slot;
  }

  // ---- votes

  struct Voter {
    int rank;
    std::uint32_t id;
    std::int64_t slot;
  };

  void vote(int rank, const ControlRecord& record) {
    const std::int64_t slot = record.value;
    state.vote(rank, slot, record.lane != 0);
    const auto rounds = open_rounds();
    const bool first = std::find(rounds.begin(), rounds.end(), slot) == rounds.end();
    voters.push_back({rank, record.id, slot});
    settle(slot);
    if (!first || voters.empty() || voters.back().slot != slot) return;
    asio::steady_timer& timer = round_ends.try_emplace(slot, io).first->second;
    timer.expires_after(seconds(spec.deadline_s));
    timer.async_wait([this, slot](boost::system::error_code error) {
      if (error || state.verdict(slot) != ControlState::Verdict::kPending) return;
      state.abandon(slot, fmt::format("{} did not vote on slot {} within {:g} s",
                                      ranks_text(state.missing_votes(slot)), slot, spec.deadline_s));
      settle(slot);
    });
  }

  std::vector<std::int64_t> open_rounds() const {
    std::vector<std::int64_t> slots;
    for (const Voter& voter : voters) {
      if (std::find(slots.begin(), slots.end(), voter.slot) == slots.end()) slots.push_back(voter.slot);
    }
    return slots;
  }

  void settle(std::int64_t slot) {
    using Verdict = ControlState::Verdict;
    const Verdict verdict = state.verdict(slot);
    if (verdict == Verdict::kPending) return;
    round_ends.erase(slot);
    const std::string why = state.abandoned_because(slot);
    std::erase_if(voters, [&](const Voter& voter) {
      if (voter.slot != slot) return false;
      if (verdict != Verdict::kAbandoned) state.collect(voter.rank, slot);
      send(base::at(sessions, voter.rank),
           {verdict == Verdict::kAbandoned ? ControlType::kLate : ControlType::kAnswer, 0, voter.rank,
            voter.id, verdict == Verdict::kYes ? 1 : 0, why});
      return true;
    });
  }

  // ---- exchanges

  void exchange(int rank, ControlRecord record) {
    if (record.lane >= kControlLanes) fail_run(fmt::format("control plane: no conversation {}", record.lane));
    const bool of_all = static_cast<ControlLane>(record.lane) == ControlLane::kWorld;
    ControlConversation& lane = lanes[record.lane];
    lane.take(rank, std::move(record), of_all ? spec.ranks : trainers, spec.deadline_s);
  }

  // ---- failure

  ControlRecord failure_record() const {
    return {ControlType::kFailure, 0, -1, 0, state.failure_status(), state.failure()};
  }

  // A rank may report that it misses a dead one before the death itself is known here, which says more.
  void fail_soon(int rank, int exit_status, const std::string& message, int looks) {
    const auto timer = std::make_shared<asio::steady_timer>(io);
    timer->expires_after(kDeathKnownWithin);
    timer->async_wait([=, this, kept = timer](boost::system::error_code error) {
      if (error) return;
      if (dying > 0 && looks > 0) return fail_soon(rank, exit_status, message, looks - 1);
      if (!reason.empty()) return;  // the death caused what it could not do
      fail(rank, exit_status, message);
    });
  }

  void fail(int rank, int exit_status, const std::string& message) {
    if (!state.fail(rank, exit_status, message)) return;
    {
      const std::lock_guard lock(mutex);
      failure = state.failure();
      status = state.failure_status();
    }
    for (const ControlSessionPtr& session : sessions) send(session, failure_record());
  }

  // ---- what outlives a death

  bool stopped() const { return state.failed() || !reason.empty(); }

  ControlRecord interruption_record() const { return {ControlType::kInterrupted, 0, -1, 0, 0, reason}; }

  void interrupt(int rank, const std::string& how) {
    if (stopped()) return;
    missed = rank;
    missed_because = how;
    {
      const std::lock_guard lock(mutex);
      reason = fmt::format("rank {}: {}", rank, how);
    }
    for (const ControlSessionPtr& session : sessions) send(session, interruption_record());
  }

  void give_up() {
    if (!reason.empty()) fail(missed, 1, missed_because);
  }

  void set_held(int rank, bool is) {
    const std::lock_guard lock(mutex);
    base::at(holds, rank) = is;
  }

  void resume_ranks(const Continuation& next) {
    for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
      const ControlSessionPtr& session = sessions[rank];
      if (!session) continue;
      if (holds[rank]) {
        session->send(continuation_record(static_cast<int>(rank), next));
      } else {
        session->close();
      }
    }
  }

  ControlServerSpec spec;
  ControlState state;
  asio::io_context io;
  tcp::acceptor acceptor;
  asio::steady_timer accept_again;
  std::vector<ControlSessionPtr> sessions;  // by rank
  std::vector<std::int64_t> begun;          // by rank; -1 before the first slot
  std::vector<Voter> voters;
  std::map<std::int64_t, asio::steady_timer> round_ends;  // by slot
  std::deque<ControlConversation> lanes;
  bool closing = false;
  int missed = -1;  // whose death or silence interrupted the run
  std::string missed_because;
  int dying = 0;     // ranks whose connection is lost, and whose end is being looked into
  int trainers = 0;  // of the first hello
  std::atomic<bool> slot_begun = false;
  std::string version;  // of the first rank that came
  std::uint16_t port = 0;
  std::thread thread;

  mutable std::mutex mutex;
  std::string failure;
  int status = 0;
  std::string reason;       // of the interruption; the server's thread reads it without the lock
  std::vector<bool> holds;  // by rank
};

ControlServer::ControlServer(ControlServerSpec spec) : impl_(std::make_unique<Impl>(std::move(spec))) {}
ControlServer::~ControlServer() = default;

std::uint16_t ControlServer::port() const {
  return impl_->port;
}

void ControlServer::request(std::uint32_t actions, const std::string&) {
  asio::post(impl_->io, [impl = impl_.get(), actions] { impl->request(actions); });
}

void ControlServer::fail(int rank, int exit_status, const std::string& message) {
  asio::post(impl_->io,
             [impl = impl_.get(), rank, exit_status, message] { impl->fail(rank, exit_status, message); });
}

bool ControlServer::failed() const {
  return failure_status() != 0;
}

std::string ControlServer::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

int ControlServer::failure_status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->status;
}

void ControlServer::interrupt(int rank, const std::string& how) {
  asio::post(impl_->io, [impl = impl_.get(), rank, how] { impl->interrupt(rank, how); });
}

void ControlServer::give_up() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->give_up(); });
}

std::string ControlServer::interruption() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->reason;
}

std::vector<int> ControlServer::held() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < impl_->holds.size(); ++rank) {
    if (impl_->holds[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

bool ControlServer::any_slot_begun() const {
  return impl_->slot_begun;
}

void ControlServer::resume_ranks(const Continuation& next) {
  asio::post(impl_->io, [impl = impl_.get(), next] { impl->resume_ranks(next); });
}

TENON_ABI_END
