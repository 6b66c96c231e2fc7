// FairShare: ranks sequences so that clients share the engine fairly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/sequence.h"

namespace tokamak {

struct ClientLevel;

// The sequences of one client and priority.
struct ClientQueue {
  ClientLevel* level = nullptr;
  std::set<Sequence*, ByArrival> sequences;
  int32_t num_waiting = 0;  // waiting ones among `sequences`
  int64_t served = 0;       // tokens computed for it, in units of virtual time
  int64_t turn_start = 0;   // `served` when the client's turn began
  int64_t charged = 0;      // tokens charged since the last step began
  bool advanced = false;    // whether some of those were for its first sequence
  int64_t recomputed = 0;   // tokens recomputed in this turn, not charged
};

// The clients of one priority.
struct ClientLevel {
  std::map<std::string, ClientQueue> queues;
  int64_t virtual_time = 0;  // in tokens; where a new client starts
};

// Higher priorities go first. Within a priority, clients take turns of `quantum` computed tokens,
// prompt or generated. A client's sequences go in order of arrival. Sequences are ranked by
// this number, smallest first, then by arrival:
//
//   rank of a client's i-th sequence = tokens served before its turn + i * quantum
//
// A client with one sequence therefore goes before the second sequence of every other client, and
// clients with many get equal shares. This is start-time fair queuing (Goyal et al., 1996) with
// tokens as service, as in VTC (arXiv:2401.00588). Both papers order clients by a counter alone.
// Here a sequence's place within its client counts too, because many sequences run at once.
//
// Five rules keep it fair and ensure progress:
// - Idle clients collect no credit. A client with nothing waiting starts its next request no
//   earlier than the virtual time: the tokens of a client that always took its share.
// - Only new positions are charged. What a preempted sequence recomputes is free, unless its
//   client had paused it.
// - A turn lasts until it has charged as many tokens as were recomputed in it. So even if every
//   turn preempts the one before, at least half of the work is new, however long the contexts.
//   Shares stay equal, because a client with a longer turn then waits longer.
// - A client's turn ends when its first sequence ends. So a new request waits no longer for
//   clients with many short sequences than for clients that send the same ones one by one.
// - Otherwise a turn ends only with a new position of the client's first sequence. So the best
//   ranked sequence makes progress, unless a request arrives that ranks above it.
//
// Keeps state only for clients with sequences. Engine thread only.
class FairShare {
  using Levels = std::map<int32_t, ClientLevel, std::greater<>>;  // by priority

 public:
  explicit FairShare(int64_t quantum) : quantum_(quantum) {}

  // Adds a waiting sequence. It takes part until Leave.
  void Join(Sequence* sequence);
  void Leave(Sequence* sequence);
  // A sequence that takes part begins (+1) or ceases (-1) to wait.
  void CountWaiting(const Sequence& sequence, int32_t change);
  // Ends turns according to what was charged since the last call.
  void BeginStep();
  // The step will compute positions [start, end) in each of the sequence's rows.
  void Charge(Sequence* sequence, int32_t start, int32_t end, int32_t num_rows);

  // All sequences that take part, best ranked first. Join, Leave and BeginStep invalidate it.
  class Walk {
   public:
    explicit Walk(const FairShare& fair_share);
    Sequence* Next();  // null at the end

   private:
    struct Head {
      int64_t rank = 0;
      std::set<Sequence*, ByArrival>::const_iterator next, end;
    };
    static bool GoesLater(const Head& a, const Head& b);
    void EnterLevel();

    const int64_t quantum_;
    Levels::const_iterator level_, last_level_;
    std::vector<Head> heads_;  // a heap of the level's clients
  };

 private:
  friend class EngineChecker;  // tests/sim: invariants after every step

  static void EndTurn(ClientQueue* queue);

  const int64_t quantum_;
  Levels levels_;
};

}  // namespace tokamak
