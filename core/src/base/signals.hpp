// The one place that takes SIGINT and SIGTERM: a thread of its own, while every other thread has them
// blocked. Also what all programs of this tree do about other signals, and threads that take none.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <string>

namespace tenon::base {

struct SignalOwner;

/// Takes SIGINT and SIGTERM from here on, also from threads that exist already and do not block them. Until
/// there is a listener they end the process as they do by default. The first statement of a `main`, so that
/// no thread of the program can be interrupted; otherwise the first listener makes one.
class Signals {
 public:
  /// with_user: SIGUSR1, too, which schedulers send before the time is over, and Open MPI's mpirun passes on.
  explicit Signals(bool with_user = false);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

 private:
  friend class StopListener;
  std::shared_ptr<SignalOwner> owner_;
};

/// Hears requests to stop while it lives. All signals are one request, however often they come; only a person
/// who types Ctrl-C again, a second or more after the first time, wants something else. The functions run on
/// the owner's thread, one at a time; they neither wait for other processes nor make listeners.
class StopListener {
 public:
  /// `asked("SIGTERM", typed)`: once, at the first signal. typed: a SIGINT while this process is in the
  /// foreground of its terminal. `insisted`: at each later SIGINT of this kind.
  StopListener(std::function<void(const std::string& signal, bool typed)> asked,
               std::function<void()> insisted);
  ~StopListener();
  StopListener(const StopListener&) = delete;
  StopListener& operator=(const StopListener&) = delete;

 private:
  struct Entry;
  friend struct SignalOwner;
  Signals signals_;
  std::unique_ptr<Entry> entry_;
};

/// The first call of every `main`, before anything is opened and any thread is started: descriptors 0, 1 and
/// 2 are there; a write into a pipe without reader, or beyond the largest size of files, fails with an error
/// that names its file; children that end are waited for; and an exception does not end the process where
/// memory is short.
void prepare();

/// While it lives, threads that are started from this one take no signals: those of the program are for its
/// own.
class WithoutSignals {
 public:
  WithoutSignals();
  ~WithoutSignals();
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tenon::base
