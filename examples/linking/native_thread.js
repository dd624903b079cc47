// A span processor that says on which thread of the system a span began.
//
//     new NodeTracerProvider({ spanProcessors: [new NativeThread(), ...] })

const { readlinkSync } = require("node:fs");

/** The system's id of the thread that runs this, worker threads included: /proc/thread-self leads to PID/task/TID (Linux). */
const nativeId = Number(readlinkSync("/proc/thread-self").split("/").at(-1));

/** Sets `thread.native_id`, by which profbridge finds the thread in a profile. */
class NativeThread {
  onStart(span) {
    span.setAttribute("thread.native_id", nativeId);
  }

  onEnd() {}

  async forceFlush() {}

  async shutdown() {}
}

module.exports = { NativeThread };
