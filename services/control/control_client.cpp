// The client of the control plane (control_client.hpp): callers write under a lock, one thread reads.
#include "control/control_client.hpp"

#include "control/control_wire.hpp"
#include "control/failure_callbacks.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <utility>  // which Boost 1.74 forgets

#include <boost/asio.hpp>

#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

TENON_ABI_BEGIN

namespace asio = boost::asio;
using asio::ip::tcp;
using Steady = std::chrono::steady_clock;

namespace {

constexpr std::chrono::milliseconds kTryAgainAfter{50};
/// The server answers late ones by itself; this only ends waits on a server that hangs.
constexpr double kGraceSeconds = 10;

Steady::time_point after(double seconds) {
  return Steady::now() + std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct ControlClient::Impl {
  explicit Impl(const ControlClientSpec& given) : spec(given), socket(io) {
    connect();
    reader = std::thread([this] { read(); });
    try {
      const ControlRecord answer =
          call({ControlType::kHello, 0, spec.rank, 0, spec.ranks + (std::int64_t{spec.trainers} << 32),
                fmt::format("{}\n{}\n{}", spec.token, spec.version, spec.deadline_s)});
      if (answer.type == ControlType::kRefused) {
        fail_config(
            fmt::format("rank {} may not join the run at {}: {}", spec.rank, spec.server, answer.text));
      }
    } catch (...) {
      leave();
      throw;
    }
  }

  ~Impl() { leave(); }

  void leave() {
    {
      const std::lock_guard lock(mutex);
      if (std::exchange(leaving, true)) return;
    }
    try {
      send({ControlType::kBye, 0, spec.rank, 0, 0, {}});
    } catch (const Error&) {
      // The connection is gone, which is what a goodbye brings about.
    }
    boost::system::error_code ignored;
    socket.shutdown(tcp::socket::shutdown_both, ignored);
    if (reader.joinable()) reader.join();
  }

  void connect() {
    const ControlEndpoint server = control_endpoint(spec.server);
    const Steady::time_point until = after(spec.deadline_s);
    tcp::resolver resolver(io);
    while (true) {
      boost::system::error_code error;
      const auto found = resolver.resolve(server.host, std::to_string(server.port), error);
      if (!error) error = try_to_connect(found, until);
      if (!error) break;
      if (Steady::now() >= until) {
        throw DeadlineError(fmt::format("rank {}: no answer from the control plane {} within {:g} s: {}",
                                        spec.rank, spec.server, spec.deadline_s, error.message()));
      }
      std::this_thread::sleep_for(kTryAgainAfter);
    }
    socket.set_option(tcp::no_delay(true));
    // A write must end as well when the server hangs or its machine is gone; the kernel breaks the connection
    // then.
    const int milliseconds = static_cast<int>(std::min(1e3 * (spec.deadline_s + kGraceSeconds), 2e9));
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  }

  // An address that swallows packets would hold a plain connect for minutes.
  boost::system::error_code try_to_connect(const tcp::resolver::results_type& found,
                                           Steady::time_point until) {
    boost::system::error_code result = asio::error::timed_out;
    asio::async_connect(socket, found,
                        [&](boost::system::error_code error, const tcp::endpoint&) { result = error; });
    io.restart();
    io.run_until(until);
    if (!io.stopped()) {
      boost::system::error_code ignored;
      socket.close(ignored);
      io.run();  // the handler
      result = asio::error::timed_out;
    }
    return result;
  }

  // ---- writing

  void send(const ControlRecord& record) {
    const ControlHeader header = encode_header(record);
    const std::array<asio::const_buffer, 2> parts{asio::buffer(header), asio::buffer(record.text)};
    const std::lock_guard lock(write_mutex);
    boost::system::error_code error;
    asio::write(socket, parts, error);
    if (error) fail_run("control plane: " + error.message());
    const std::lock_guard counting(mutex);
    sent += header.size() + record.text.size();
  }

  ControlRecord call(ControlRecord record) {
    static_cast<void>(encode_header(record));  // one that cannot be sent is the caller's error
    std::unique_lock lock(mutex);
    if (!failure.empty()) throw CancelledError(failure);
    record.id = ++last_id;
    waiting.push_back({record.id, false, {}});
    lock.unlock();
    try {
      send(record);
    } catch (const Error&) {
      // The reading thread learns why, and ends all waits.
    }
    lock.lock();
    const Steady::time_point until = after(spec.deadline_s + kGraceSeconds);
    while (true) {
      const auto mine = std::find_if(waiting.begin(), waiting.end(),
                                     [&](const Waiting& entry) { return entry.id == record.id; });
      const bool late = Steady::now() >= until;
      if (mine->answered || !failure.empty() || late) {
        const bool answered = mine->answered;
        ControlRecord answer = std::move(mine->answer);
        waiting.erase(mine);
        if (!answered && !failure.empty()) throw CancelledError(failure);
        if (!answered) {
          throw DeadlineError(fmt::format("the control plane {} did not answer within {:g} s", spec.server,
                                          spec.deadline_s + kGraceSeconds));
        }
        if (answer.type == ControlType::kLate) throw DeadlineError(answer.text);
        if (answer.type == ControlType::kError) fail_run(answer.text);
        return answer;
      }
      changed.wait_until(lock, until);
    }
  }

  // ---- reading

  void read() {
    std::string why;
    boost::system::error_code error;
    while (true) {
      ControlHeader header;
      ControlRecord record;
      asio::read(socket, asio::buffer(header), error);
      if (error) break;
      try {
        std::uint32_t text_bytes = 0;
        record = decode_header(header, text_bytes);
        record.text.resize(text_bytes);
      } catch (const Error& bad) {
        why = bad.what();
        break;
      }
      asio::read(socket, asio::buffer(record.text), error);
      if (error) break;
      take(std::move(record));
    }
    {
      const std::lock_guard lock(mutex);
      if (leaving) return;
    }
    const bool closed = error == asio::error::eof || error == asio::error::connection_reset;
    if (why.empty() && !closed) {  // "Connection timed out": what was sent there was not received
      return failed_with(fmt::format("rank {}: the control plane {} is out of reach ({})", spec.rank,
                                     spec.server, error.message()),
                         1);
    }
    failed_with(
        fmt::format("rank {}: the control plane {} is gone ({}); the program that started the run has ended",
                    spec.rank, spec.server, why.empty() ? "it closed the connection" : why),
        1);
  }

  void take(ControlRecord record) {
    if (record.type == ControlType::kFailure) return failed_with(record.text, static_cast<int>(record.value));
    if (record.type == ControlType::kInterrupted) return interrupt(record.text);
    if (record.type == ControlType::kAsked) return interrupts.call("asked");
    const std::lock_guard lock(mutex);
    if (record.type == ControlType::kGoOn) {
      continuation = read_continuation(record);
      changed.notify_all();
      return;
    }
    for (Waiting& entry : waiting) {
      if (entry.id != record.id) continue;
      entry.answer = std::move(record);
      entry.answered = true;
      break;
    }
    changed.notify_all();
  }

  void failed_with(const std::string& text, int exit_status) {
    {
      const std::lock_guard lock(mutex);
      if (!failure.empty() && !std::exchange(outlives, false)) return;
      failure = text;
      status = exit_status == 0 ? 1 : exit_status;
      changed.notify_all();
    }
    callbacks.call(text);
  }

  /// The server decides whose failure was the first, and answers all ranks at once.
  void report(const ControlRecord& record) {
    const auto of_rank = [&] { return fmt::format("rank {}: {}", record.rank, record.text); };
    const int exit_status = static_cast<int>(record.value);
    try {
      send(record);
    } catch (const Error&) {
      failed_with(of_rank(), exit_status);
    }
    std::unique_lock lock(mutex);
    const bool told = changed.wait_until(lock, after(kGraceSeconds), [&] { return !failure.empty(); });
    lock.unlock();
    if (!told) failed_with(of_rank(), exit_status);
  }

  void interrupt(const std::string& text) {
    {
      const std::lock_guard lock(mutex);
      if (!failure.empty()) return;
      failure = text;
      status = 1;
      outlives = true;
      changed.notify_all();
    }
    callbacks.call(text);
  }

  struct Waiting {
    std::uint32_t id;
    bool answered;
    ControlRecord answer;
  };

  const ControlClientSpec spec;
  asio::io_context io;
  tcp::socket socket;
  std::mutex write_mutex;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::vector<Waiting> waiting;
  std::uint32_t last_id = 0;
  std::string failure;
  int status = 0;
  bool outlives = false;  // the failure is an interruption, and the run may go on
  std::optional<Continuation> continuation;
  std::uint64_t sent = 0;
  bool leaving = false;

  FailureCallbacks callbacks, interrupts;
  std::thread reader;
};

ControlClient::ControlClient(const ControlClientSpec& spec) : impl_(std::make_unique<Impl>(spec)) {}
ControlClient::~ControlClient() = default;

int ControlClient::on_failure(std::function<void(const std::string&)> callback) {
  return impl_->callbacks.add(std::move(callback), [this] { return failure(); });
}

void ControlClient::on_interrupt(std::function<void()> callback) {
  impl_->interrupts.add([callback = std::move(callback)](const std::string&) { callback(); },
                        [] { return std::string(); });
}

void ControlClient::ask(std::uint32_t actions, std::string_view reason) {
  impl_->send({ControlType::kRequest, 0, impl_->spec.rank, 0, actions, std::string(reason)});
}

void ControlClient::close_abruptly() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->leaving = true;
  }
  boost::system::error_code ignored;
  impl_->socket.shutdown(tcp::socket::shutdown_both, ignored);
  impl_->reader.join();
}

std::vector<std::string> ControlClient::exchange(ControlLane lane, const std::string& text) {
  return split_texts(
      impl_->call({ControlType::kExchange, static_cast<std::uint8_t>(lane), impl_->spec.rank, 0, 0, text})
          .text);
}

std::uint32_t ControlClient::begin_slot(int rank, std::int64_t slot) {
  return static_cast<std::uint32_t>(impl_->call({ControlType::kBeginSlot, 0, rank, 0, slot, {}}).value);
}

std::int64_t ControlClient::request(std::uint32_t actions, std::string_view reason) {
  return impl_->call({ControlType::kRequest, 0, impl_->spec.rank, 0, actions, std::string(reason)}).value;
}

bool ControlClient::commit(int rank, std::int64_t slot, bool yes) {
  return impl_->call({ControlType::kVote, static_cast<std::uint8_t>(yes), rank, 0, slot, {}}).value != 0;
}

bool ControlClient::interrupted() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->outlives;
}

std::optional<Continuation> ControlClient::hold(double seconds) {
  try {
    impl_->send({ControlType::kHeld, 0, impl_->spec.rank, 0, 0, {}});
  } catch (const Error&) {
    // The reader learns that the server is gone, and ends the wait below.
  }
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_until(lock, after(seconds), [&] { return impl_->continuation || !impl_->outlives; });
  return impl_->continuation;
}

void ControlClient::miss(int rank, std::string_view message) {
  impl_->report({ControlType::kFail, 1, rank, 0, 1, std::string(message)});
}

void ControlClient::fail(int rank, int exit_status, std::string_view message) {
  impl_->report({ControlType::kFail, 0, rank, 0, exit_status, std::string(message)});
}

bool ControlClient::failed() const {
  return failure_status() != 0;
}

std::string ControlClient::failure() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->failure;
}

int ControlClient::failure_status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->status;
}

std::uint64_t ControlClient::bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->sent;
}

TENON_ABI_END
