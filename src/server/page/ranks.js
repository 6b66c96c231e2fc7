// A lane for each rank: the shares of about the last second in which it computed, and in which it
// waited for other ranks.
import {bytes, h, percent, setText} from './dom.js';
import {newLane} from './timeline.js';

const PARTS = ['busy', 'wait'];

export class Ranks {
  #lanes = h('div.lanes', {role: 'list'});

  constructor() {
    const legend = h('p.legend', {}, PARTS.map((part) => h('span', {}, h(`i.swatch.${part}`), part)));
    this.element = h('section', {'aria-label': 'Ranks', hidden: true},
                     h('h3', {}, 'Ranks', h('span', {}, 'of the last second')), this.#lanes, legend);
  }

  // Servers of earlier versions name no ranks.
  show({ranks = []}) {
    this.element.hidden = ranks.length < 2;
    while (this.#lanes.children.length > ranks.length) this.#lanes.lastChild.remove();
    const replicas = new Set(ranks.map(({replica}) => replica)).size;
    ranks.forEach((rank, i) => {
      const lane = this.#lanes.children[i] ?? this.#lanes.appendChild(newLane(PARTS));
      fill(lane, rank, replicas > 1);
    });
  }
}

function fill(lane, rank, ofReplica) {
  const [name, bar, end] = lane.children;
  let left = 0;
  PARTS.forEach((part, i) => {
    bar.children[i].hidden = !(rank[part] > 0);
    bar.children[i].style.setProperty('left', `${100 * left}%`);
    bar.children[i].style.setProperty('width', `${100 * rank[part]}%`);
    left += rank[part];
  });
  setText(name, `${ofReplica ? `${rank.replica}: ` : ''}rank ${rank.rank}`);
  setText(end, percent(rank.busy, 1));
  const text = `replica ${rank.replica}, stage ${rank.stage}, rank ${rank.rank}: busy ${
      percent(rank.busy, 1)}, waits for other ranks ${percent(rank.wait, 1)}, receives ${
      bytes(1e6 * rank.received_mb_s)}/s`;
  lane.title = text;
  lane.setAttribute('aria-label', text);
}
