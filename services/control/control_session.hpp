// One connection of the server of the control plane: reads records, writes records in order, and closes when
// a peer does not name its rank.
#pragma once

#include "control/control_wire.hpp"

#include <utility>  // which Boost 1.74 forgets

#include <boost/asio.hpp>

#include <deque>
#include <memory>
#include <string>

TENON_ABI_BEGIN

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

TENON_ABI_END
