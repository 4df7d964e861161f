// The synchronisation strategies of this tree, with intervals of which 12 slots are a multiple and 14 are
// not.
#pragma once

namespace tenon::integration {

struct Strategy {
  const char* name;
  const char* toml;  ///< of [sync]
  int servers = 0;
};

inline constexpr Strategy kStrategies[] = {
    {"ddp_bf16", "type = 'ddp'\ncommunication = 'bf16'\nbucket_mb = 0.001\n"},
    {"local_sgd", "type = 'local_sgd'\ninterval = 4\n"},
    {"post_local_sgd", "type = 'post_local_sgd'\ninterval = 4\nwarmup = 6\n"},
    {"diloco", "type = 'diloco'\ninterval = 4\n"},
    {"palsgd", "type = 'palsgd'\ninterval = 4\nwarmup = 4\np = 0.2\neta = 0.5\n"},
    {"bmuf", "type = 'bmuf'\ninterval = 4\n"},
    {"easgd", "type = 'easgd'\ninterval = 3\n"},
    {"streaming_diloco", "type = 'streaming_diloco'\ninterval = 6\nfragments = 2\ndelay = 1\nalpha = 0.5\n"},
    {"powersgd", "type = 'powersgd'\nstart_after = 4\nrank = 1\n[sync.inner]\ntype = 'ddp'\n"},
    {"sign", "type = 'sign'\nstart_after = 4\n[sync.inner]\ntype = 'diloco'\ninterval = 4\n"},
    {"shadow_easgd", "type = 'shadow_easgd'\nmode = 'stepped'\ninterval = 3\n", 1},
    {"shadow_ma", "type = 'shadow_ma'\nmode = 'stepped'\ninterval = 3\n"},
    {"shadow_bmuf", "type = 'shadow_bmuf'\nmode = 'stepped'\ninterval = 3\n"},
};

}  // namespace tenon::integration
