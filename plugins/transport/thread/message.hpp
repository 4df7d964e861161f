// One end of a point-to-point transfer, a send or a receive, from its start to the end of its wait.
#pragma once

#include <tenon/clock.hpp>

#include <tenon/tensor.hpp>

#include <cstdint>

namespace tenon::thread_transport {

struct Message {
  bool open = false;
  bool is_send = false;
  int from = 0;  // members of the group
  int to = 0;
  int tag = 0;
  std::uint64_t serial = 0;  // orders messages of one (from, to, tag)
  TensorView data;
  Message* peer = nullptr;  // the matching end, from the match until the copy is done
  bool copying = false;     // set on both ends
  bool copied = false;
  bool waiting = false;
  double wait_begin = 0;
  double leaves = 0;   // send: when the last byte is sent, seconds of the run's clock
  double arrives = 0;  // send: earliest arrival
  double matched = 0;  // when both ends had been started
  double link_s = 0;   // link time of this end by the model
  double end = 0;      // earliest end of the wait; known once matched
  ClockEvent changed;

  int self() const { return is_send ? from : to; }
  int other() const { return is_send ? to : from; }
};

}  // namespace tenon::thread_transport
