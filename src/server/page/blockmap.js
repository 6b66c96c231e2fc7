// The KV cache, a cell for each block: free, kept by the prefix cache alone, or read by one or more
// sequences. One map per cache group.
import {count, h, number, setText} from './dom.js';

const KINDS = [  // kinds of map characters, with their names in the legend
  {name: 'one', label: 'one reader', has: (c) => c === '1'},
  {name: 'two', label: 'two readers', has: (c) => c === '2'},
  {name: 'many', label: 'three or more', has: (c) => c >= '3' && c <= '9'},
  {name: 'cached', label: 'cached', has: (c) => c === 'c'},
  {name: 'free', label: 'free', has: (c) => c === '.'},
];
const HEIGHT = 190;  // px: the height to aim at; a map may be about twice as high

export class BlockMap {
  #groups = new Map();  // name → GroupMap
  element = h('section', {'aria-label': 'KV blocks'});

  show({kv}) {
    for (const group of kv.groups) {
      let map = this.#groups.get(group.name);
      if (!map) {
        map = new GroupMap();
        this.#groups.set(group.name, map);
        this.element.append(map.element);
      }
      map.show(group, kv.block_tokens, kv.groups.length > 1);
    }
  }
}

class GroupMap {
  #title = h('span');
  #heading = h('h3', {}, 'KV blocks', this.#title);
  #canvas = h('canvas.map', {role: 'img'});
  #tip = h('p.note.map-tip', {'aria-hidden': true});
  #legend = h('p.legend');
  #host = h('p.note');
  #counts = {};
  #swatches = {};
  #drawn = '';
  #layout = {columns: 1, cell: 1};
  #map = '';

  constructor() {
    for (const {name, label} of KINDS) {
      this.#counts[name] = h('b', {'data-count': name});
      this.#swatches[name] = h(`i.swatch.${name}`);
      this.#legend.append(h('span', {}, this.#swatches[name], `${label} `, this.#counts[name]));
    }
    this.element = h('div', {}, this.#heading, this.#canvas, this.#tip, this.#legend, this.#host);
    this.#canvas.addEventListener('mousemove', (event) => this.#point(event));
    this.#canvas.addEventListener('mouseleave', () => setText(this.#tip, ''));
  }

  show(group, blockTokens, named) {
    const {map, total} = group;
    const counts = Object.fromEntries(KINDS.map(({name}) => [name, 0]));
    for (const c of map) counts[kindOf(c).name] += 1;
    // The server counts all blocks; its map may end before the last one.
    if (group.map_truncated) Object.assign(counts, {free: group.free, cached: group.cached});
    for (const {name} of KINDS) setText(this.#counts[name], number(counts[name]));
    const name = named ? `${group.name} · ` : '';
    setText(this.#title, `${name}${number(group.referenced)} of ${number(total)} in use · ${
        number(blockTokens)} tokens each`);
    this.#host.hidden = !group.host_total;
    if (group.host_total) {
      setText(this.#host, `In host memory: ${number(group.host_used)} of ${
          count(group.host_total, 'block')}.`);
    }
    const shared = counts.two + counts.many;
    this.#canvas.setAttribute('aria-label', `${count(total, 'KV block')}: ${
        number(group.referenced)} in use, ${number(shared)} of them shared, ${
        number(group.cached)} cached, ${number(group.free)} free`);
    this.#draw(map, group.map_truncated);
  }

  #draw(map, truncated) {
    const width = this.#canvas.clientWidth;
    if (!width || !map) return;
    const colours = Object.fromEntries(Object.entries(this.#swatches).map(
        ([name, swatch]) => [name, getComputedStyle(swatch).backgroundColor]));
    const what = `${width} ${devicePixelRatio} ${truncated} ${colours.free} ${map}`;
    if (what === this.#drawn) return;
    this.#drawn = what;
    this.#map = map;
    const cell = Math.max(2, Math.min(12, Math.floor(Math.sqrt(width * HEIGHT / map.length))));
    const columns = Math.floor(width / cell);
    const rows = Math.ceil(map.length / columns);
    this.#layout = {columns, cell};
    this.#canvas.style.setProperty('height', `${rows * cell}px`);
    this.#canvas.width = Math.round(width * devicePixelRatio);
    this.#canvas.height = Math.round(rows * cell * devicePixelRatio);
    const context = this.#canvas.getContext('2d');
    context.scale(devicePixelRatio, devicePixelRatio);
    const size = cell > 3 ? cell - 1 : cell - 0.5;
    for (let i = 0; i < map.length; ++i) {
      context.fillStyle = colours[kindOf(map[i]).name];
      context.fillRect((i % columns) * cell, Math.floor(i / columns) * cell, size, size);
    }
  }

  #point(event) {
    const {columns, cell} = this.#layout;
    const column = Math.floor(event.offsetX / cell);
    const block = Math.floor(event.offsetY / cell) * columns + column;
    const c = column < columns ? this.#map[block] : undefined;
    setText(this.#tip, c === undefined ? '' : `Block ${number(block)}: ${meaningOf(c)}`);
  }
}

function kindOf(c) {
  return KINDS.find((kind) => kind.has(c)) ?? KINDS.at(-1);
}

function meaningOf(c) {
  if (c === '.') return 'free';
  if (c === 'c') return 'cached, no sequence reads it now';
  return c === '9' ? 'read by nine or more sequences' : `read by ${count(Number(c), 'sequence')}`;
}
