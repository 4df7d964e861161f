// Reading and writing of one connection (control_session.hpp).
#include "control/control_session.hpp"

#include <tenon/error.hpp>

#include <array>
#include <chrono>

TENON_ABI_BEGIN

namespace asio = boost::asio;
using asio::ip::tcp;

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

TENON_ABI_END
