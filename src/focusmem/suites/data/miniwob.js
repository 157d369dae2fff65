// Added to MiniWoB++'s core.js. Begins the problem of the seed in the address, and notes on the page's root element what
// the page asks, and how it has ended. The clock of the original, which ends a problem after seconds, never runs out.
(() => {
  const seed = core.QueryString.seed;
  if (seed === undefined) return;
  const LONGEST_MS = 2 ** 31 - 1;
  const notes = document.documentElement.dataset;
  Math.seedrandom(seed);

  const end = core.endEpisode;
  core.endEpisode = (...told) => {
    const isRunning = core.EP_TIMER !== null;
    end(...told);
    if (isRunning) Object.assign(notes, { wobReward: WOB_RAW_REWARD_GLOBAL, wobOver: "yes" });
  };

  const begin = () => {
    const style = document.createElement("style");
    style.textContent = "#reward-display, #click-canvas, #sync-task-cover { display: none !important }";
    document.head.append(style);
    Math.seedrandom(seed);
    core.EPISODE_MAX_TIME = LONGEST_MS;
    core.startEpisodeReal();
    const note = () => {
      if (!WOB_TASK_READY) return setTimeout(note, 20);
      const asked = core.getUtterance();
      notes.wobAsked = typeof asked === "string" ? asked : asked.utterance;
      notes.wobReward = WOB_RAW_REWARD_GLOBAL;
    };
    note();
  };
  // After the page's own handler, which shows a cover to click on.
  addEventListener("load", () => setTimeout(begin, 0));
})();
