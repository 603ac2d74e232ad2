// Draws each figure.chart of a page with ECharts from the JSON beside it: when it is scrolled to, in the colours of the
// page's style, again at a change of scheme, and all of them before the page is printed. The table behind a chart is
// made when it is opened, and of a long list only what is seen. Texts reach the page as text alone.
'use strict';
(() => {
  const root = document.documentElement;
  const CANVAS_ROWS = 128, CANVAS_SPANS = 3000, PLAIN_ROWS = 200, ROW = 24, NARROW = 520;
  const HUES = ['--c0', '--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7'];
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const tone = (name, number) => style({ bad: '--bad', good: '--good', muted: '--soft' }[name] || HUES[number % 8]);
  const figures = new Map();

  const PREFIXES = ['', 'K', 'M', 'G', 'T', 'P'];
  const scaled = (value, base, unit) => {
    let power = 0;
    while (Math.abs(value) >= base && power < 5) { value /= base; power += 1; }
    return `${short(value)}${PREFIXES[power]}${unit}`;
  };
  const short = (value) => String(Number(Number(value).toPrecision(4)));
  const clock = (seconds) => {
    const whole = Math.round(seconds);
    if (Math.abs(whole) < 60) return `${short(seconds)} s`;
    return Math.abs(whole) < 7200 ? `${short(whole / 60)} min` : `${short(whole / 3600)} h`;
  };
  const FORMATS = {
    bytes: (value) => scaled(value, 1024, ''), seconds: clock,
    number: (value) => (Math.abs(value) >= 1e4 ? scaled(value, 1000, '') : short(value)),
  };
  const shown = (value, format) => (value === null || value === undefined ? '–' : (FORMATS[format] || FORMATS.number)(value));
  const exact = (value) => (typeof value === 'number' ? value.toLocaleString('en', { maximumSignificantDigits: 5 }) : value ?? '–');

  const axisText = () => ({ color: style('--soft'), fontSize: 11, hideOverlap: true });
  const axis = (spec, more) => ({
    type: spec.kind || 'value', name: spec.name, scale: spec.from === undefined, min: spec.from, max: spec.to,
    logBase: spec.format === 'bytes' ? 2 : 10, nameTextStyle: { color: style('--soft'), fontSize: 11 },
    axisLabel: { ...axisText(), formatter: (value) => shown(value, spec.format) },
    axisLine: { lineStyle: { color: style('--line') } }, splitLine: { lineStyle: { color: style('--line') } },
    minorSplitLine: { show: false }, ...more,
  });
  const tooltip = (more) => ({
    renderMode: 'richText', confine: true, backgroundColor: style('--page'), borderColor: style('--line'),
    textStyle: { color: style('--ink'), fontSize: 12 }, transitionDuration: 0, ...more,
  });
  // Marks of a time axis stand at whole seconds, minutes or hours.
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
  const timeStep = (span, width) => STEPS.find((step) => span / step <= width / 70) || 86400;
  const plain = (text) => String(text).replaceAll('{', '(').replaceAll('}', ')');

  // --- lines, bands and points over one x axis, in one or several panels ---------------------------------------------
  const PANEL = 170, FIRST = 240, TOP = 30, GAP = 34, FOOT = 46;
  const panelHeights = (spec) => spec.panels.map(() => (spec.panels.length > 2 ? 74 : spec.panels.length > 1 ? PANEL : FIRST));

  const xy = (spec, width) => {
    const heights = panelHeights(spec), narrow = width < NARROW;
    const names = spec.panels.flatMap((panel) => [...panel.series, ...(panel.lines || [])]).map((each) => each.name || '');
    const right = Math.min(Math.max(16, ...names.map((name) => name.length * 7 + 18)), width * (narrow ? 0.3 : 0.25));
    const option = { animation: false, grid: [], xAxis: [], yAxis: [], series: [], title: [] };
    const every = spec.panels.flatMap((panel) => panel.series.flatMap((each) => xOf(each, spec)));
    const span = every.reduce((a, b) => Math.max(a, b), -Infinity) - every.reduce((a, b) => Math.min(a, b), Infinity);
    const interval = spec.x.format === 'seconds' && span > 0 ? timeStep(span, width - right - 56) : undefined;
    const minInterval = spec.x.kind !== 'log' && every.every(Number.isInteger) ? 1 : undefined;
    let top = TOP;
    spec.panels.forEach((panel, at) => {
      const last = at === spec.panels.length - 1;
      option.grid.push({ left: 56, right, top, height: heights[at] });
      option.xAxis.push(axis(spec.x, {
        gridIndex: at, name: last ? spec.x.name : '', nameLocation: 'middle', nameGap: 26, scale: true,
        axisLabel: { ...axisText(), show: last, formatter: (value) => shown(value, spec.x.format) }, splitLine: { show: false },
        axisTick: { show: last }, interval, minInterval,
        min: spec.x.from ?? (interval ? (at) => Math.floor(at.min / interval) * interval : 'dataMin'),
        max: spec.x.to ?? (interval ? (at) => Math.ceil(at.max / interval) * interval : 'dataMax'),
      }));
      option.yAxis.push(axis(panel.y, {
        gridIndex: at, splitNumber: heights[at] < 100 ? 2 : 5, nameLocation: 'end', nameGap: 8,
        nameTextStyle: { color: style('--ink'), fontSize: 11, align: 'left', fontWeight: 600, padding: [0, 0, 0, -46] },
      }));
      option.series.push(marks(spec, panel, at));
      let hue = 0;
      for (const each of panel.series) {
        // A band has the colour of the line before it, which it surrounds.
        option.series.push(drawn(each, spec, at, tone(each.tone, Math.max(0, each.style === 'band' ? hue - 1 : hue)), right));
        if (!each.tone && each.style !== 'band') hue += 1;
      }
      top += heights[at] + GAP;
    });
    const linked = option.xAxis.map((_, index) => index);
    option.axisPointer = { link: [{ xAxisIndex: 'all' }] };
    option.dataZoom = [{ type: 'inside', xAxisIndex: linked, zoomOnMouseWheel: 'ctrl', moveOnMouseMove: false, filterMode: 'none' }];
    option.tooltip = tooltip({
      trigger: 'axis',
      formatter: (found) => {
        const rows = found.filter((each) => each.seriesName && Array.isArray(each.value) && each.value[1] !== null);
        const heading = rows.length ? `${plain(spec.x.name)} ${shown(rows[0].value[0], spec.x.format)}\n` : '';
        return heading + rows.slice(0, 12).map((each) => `${plain(each.seriesName)}: ${exact(each.value[1])}`).join('\n');
      },
    });
    return option;
  };
  const marks = (spec, panel, at) => ({
    type: 'line', xAxisIndex: at, yAxisIndex: at, data: [], silent: true,
    markLine: {
      symbol: 'none', silent: true, lineStyle: { color: style('--ink'), type: 'dashed', width: 1 },
      label: { position: 'insideEndTop', color: style('--ink'), fontSize: 11, formatter: (mark) => plain(mark.name) },
      data: (panel.lines || []).map((line) => ({ name: line.name, yAxis: line.value })),
    },
    markArea: {
      silent: true, itemStyle: { color: style('--shade') },
      label: { show: at === 0, position: 'insideTop', color: style('--soft'), fontSize: 11, formatter: (mark) => plain(mark.name) },
      data: (spec.areas || []).map((area) => [{ name: area.name, xAxis: area.start }, { xAxis: area.end }]),
    },
  });
  const xOf = (series, spec) => series.x || spec.xs;
  const drawn = (each, spec, at, color, right) => {
    const xs = xOf(each, spec), place = { name: each.name, xAxisIndex: at, yAxisIndex: at };
    if (each.style === 'band') {
      const edge = xs.map((x, index) => [x, each.low[index], each.high[index]]).filter((row) => row[1] !== null);
      return {
        ...place, type: 'custom', silent: true, clip: true, data: edge.length ? [[edge[0][0], edge[0][2]]] : [], tooltip: { show: false },
        renderItem: (_, api) => ({
          type: 'polygon', style: { fill: color, opacity: 0.2 },
          shape: { points: [...edge.map((row) => api.coord([row[0], row[2]])), ...edge.toReversed().map((row) => api.coord([row[0], row[1]]))] },
        }),
      };
    }
    const data = xs.map((x, index) => [x, each.y[index]]);
    if (each.style === 'points') {
      return { ...place, type: 'scatter', data, symbolSize: data.length > 200 ? 4 : 7, itemStyle: { color, opacity: 0.75 },
        label: { show: data.length === 1, formatter: plain(each.name), position: 'left', color, fontSize: 11 } };
    }
    return {
      ...place, type: 'line', data, step: each.style === 'steps' ? 'end' : false, connectNulls: false,
      showSymbol: data.length <= 24, symbolSize: 5, itemStyle: { color },
      lineStyle: { color, width: each.tone === 'muted' ? 1 : 1.6, type: each.tone === 'muted' ? 'dashed' : 'solid' },
      endLabel: { show: Boolean(each.name), formatter: plain(each.name), color, fontSize: 11, width: right - 10, overflow: 'truncate' },
    };
  };

  // --- a map of rows and columns -------------------------------------------------------------------------------------
  const heat = (spec, width) => {
    const cells = [], every = [];
    spec.cells.forEach((row, y) => row.forEach((value, x) => {
      if (value !== null) { cells.push([x, y, value]); every.push(value); }
    }));
    const low = every.reduce((a, b) => Math.min(a, b), Infinity), high = every.reduce((a, b) => Math.max(a, b), -Infinity);
    const colors = [style('--low'), style('--middle'), style('--high')];
    const labels = (names) => ({ type: 'category', data: names, axisLabel: { ...axisText(), width: names === spec.rows ? side - 12 : 90, overflow: 'truncate' }, axisTick: { show: false }, axisLine: { show: false } });
    const side = Math.min(40 + 6 * Math.max(...spec.rows.map((name) => name.length)), 230, width * 0.35);
    return {
      animation: false,
      grid: { left: side, right: 74, top: 12, bottom: 34 },
      xAxis: labels(spec.columns), yAxis: { ...labels(spec.rows), inverse: true },
      visualMap: {
        min: low, max: high === low ? low + 1 : high, orient: 'vertical', right: 0, top: 12, itemHeight: Math.min(140, heatHeight(spec, width) - 70), itemWidth: 12,
        text: [short(high), short(low)], textStyle: { color: style('--soft'), fontSize: 11 }, inRange: { color: spec.worst === 'high' ? colors.toReversed() : colors },
      },
      tooltip: tooltip({ formatter: (at) => `${plain(spec.rows[at.value[1]])} → ${plain(spec.columns[at.value[0]])}: ${exact(at.value[2])} ${plain(spec.unit)}` }),
      series: [{ type: 'heatmap', data: cells, progressive: 20000, itemStyle: { borderWidth: spec.rows.length > 64 ? 0 : 1, borderColor: style('--page') } }],
    };
  };
  const heatHeight = (spec, width) => Math.max(120, Math.min(60 + spec.rows.length * 22, Math.min(width, 560)));

  // --- what each row does from when to when --------------------------------------------------------------------------
  const spanRow = (spec) => Math.max(3, Math.min(20, 900 / Math.max(1, spec.rows.length)));
  const spans = (spec, width, off) => ({
    animation: false,
    grid: { left: Math.min(90, width * 0.22), right: 16, top: 8, bottom: 62 },
    xAxis: axis(spec.x, { nameLocation: 'middle', nameGap: 24, splitLine: { show: false }, min: spec.x.from ?? 0, max: spec.x.to }),
    yAxis: { type: 'category', data: spec.rows, inverse: true, axisLabel: axisText(), axisTick: { show: false }, axisLine: { show: false } },
    dataZoom: [
      { type: 'slider', height: 16, bottom: 4, filterMode: 'weakFilter', brushSelect: false, showDetail: false },
      { type: 'inside', zoomOnMouseWheel: 'ctrl', filterMode: 'weakFilter' },
    ],
    tooltip: tooltip({ formatter: (at) => `${plain(spec.rows[at.value[0]])}: ${plain(at.seriesName)}, ${shown(at.value[1], spec.x.format)} to ${shown(at.value[2], spec.x.format)}` }),
    series: spec.kinds.map((name, kind) => ({
      type: 'custom', name, clip: true, progressive: 0, encode: { x: [1, 2], y: 0 }, data: off.has(kind) ? [] : spec.spans[kind],
      itemStyle: { color: tone('', kind) },
      renderItem: (_, api) => {
        const [x, y] = api.coord([api.value(1), api.value(0)]), end = api.coord([api.value(2), api.value(0)])[0];
        const tall = api.size([0, 1])[1] * 0.85;
        return { type: 'rect', shape: { x, y: y - tall / 2, width: Math.max(end - x, 0.5), height: tall }, style: { fill: tone('', kind) } };
      },
    })),
  });

  // --- horizontal bars -----------------------------------------------------------------------------------------------
  const bars = (spec, width) => ({
    animation: false,
    grid: { left: Math.min(240, width * 0.36), right: Math.min(190, width * 0.3), top: 4, bottom: 30 },
    xAxis: axis({ name: '', from: 0, format: spec.format }, spec.format === 'seconds' ? { interval: timeStep(Math.max(...spec.bars.map((bar) => bar.value)), width * 0.34) } : { splitNumber: 4 }),
    yAxis: { type: 'category', inverse: true, data: spec.bars.map((bar) => bar.name), axisTick: { show: false }, axisLine: { show: false },
      axisLabel: { ...axisText(), color: style('--ink'), width: Math.min(225, width * 0.33), overflow: 'truncate', hideOverlap: false } },
    tooltip: tooltip({ formatter: (at) => `${plain(at.name)}: ${plain(spec.bars[at.dataIndex].text)}` }),
    series: [{
      type: 'bar', barMaxWidth: 16, data: spec.bars.map((bar, number) => ({ value: bar.value, itemStyle: { color: tone(bar.tone, bar.tone ? 0 : spec.one_hue ? 0 : number) } })),
      label: { show: true, position: 'right', color: style('--soft'), fontSize: 11, formatter: (at) => plain(spec.bars[at.dataIndex].text) },
    }],
  });

  const KINDS = {
    xy: { option: xy, height: (spec) => TOP + FOOT + panelHeights(spec).reduce((sum, each) => sum + each + GAP, 0) - GAP, canvas: () => false },
    heat: { option: heat, height: heatHeight, canvas: (spec) => spec.rows.length > CANVAS_ROWS },
    spans: { option: spans, height: (spec) => 80 + spec.rows.length * spanRow(spec), canvas: (spec) => spec.spans.reduce((sum, each) => sum + each.length, 0) > CANVAS_SPANS },
    bars: { option: bars, height: (spec) => 40 + 24 * spec.bars.length, canvas: () => false },
  };

  // --- tables of a chart's numbers -----------------------------------------------------------------------------------
  const TABLES = {
    xy: (spec) => {
      const series = spec.panels.flatMap((panel) => panel.series.map((each) => ({ ...each, label: spec.panels.length > 1 ? `${panel.y.name}: ${each.name}` : each.name })));
      const rows = new Map();
      series.forEach((each, column) => xOf(each, spec).forEach((x, index) => {
        if (!rows.has(x)) rows.set(x, new Array(series.length).fill(null));
        rows.get(x)[column] = each.style === 'band' ? `${exact(each.low[index])} to ${exact(each.high[index])}` : each.y[index];
      }));
      const ordered = [...rows.entries()].sort((a, b) => a[0] - b[0]);
      return { head: [spec.x.name, ...series.map((each) => each.label)], count: ordered.length, row: (at) => [ordered[at][0], ...ordered[at][1]] };
    },
    heat: (spec) => {
      const cells = spec.cells.flatMap((row, y) => row.map((value, x) => [spec.rows[y], spec.columns[x], value])).filter((cell) => cell[2] !== null);
      cells.sort((a, b) => (spec.worst === 'high' ? b[2] - a[2] : a[2] - b[2]));
      return { head: ['row', 'column', spec.unit], count: cells.length, row: (at) => cells[at] };
    },
    spans: (spec) => {
      const all = spec.spans.flatMap((list, kind) => list.map(([row, begin, end]) => [spec.rows[row], spec.kinds[kind], begin, end]));
      all.sort((a, b) => a[2] - b[2]);
      return { head: ['row', 'what', `from, ${spec.x.name}`, 'to'], count: all.length, row: (at) => all[at] };
    },
    bars: (spec) => ({ head: ['what', spec.unit, ''], count: spec.bars.length, row: (at) => [spec.bars[at].name, spec.bars[at].value, spec.bars[at].text] }),
  };
  const line = (cells, tag) => {
    const row = document.createElement('tr');
    for (const cell of cells) {
      const element = document.createElement(tag);
      element.textContent = exact(cell);
      if (typeof cell === 'number') element.className = 'number';
      row.append(element);
    }
    return row;
  };
  const filled = (box, table) => {
    const element = document.createElement('table'), head = document.createElement('thead'), body = document.createElement('tbody');
    head.append(line(table.head, 'th'));
    element.append(head, body);
    box.append(element);
    if (table.count <= PLAIN_ROWS) {
      for (let at = 0; at < table.count; at += 1) body.append(line(table.row(at), 'td'));
      return;
    }
    windowed(box, body, table.count, (at) => line(table.row(at), 'td'));
  };

  // --- long lists ----------------------------------------------------------------------------------------------------
  // Only the rows that the box shows and some around them are in the page; two empty ones stand for those above and below.
  const windowed = (box, body, count, row) => {
    box.classList.add('numbers', 'virtual');
    const spacer = () => {
      const element = document.createElement(body.tagName === 'UL' ? 'li' : 'tr');
      element.className = 'spacer';
      if (element.tagName === 'TR') element.append(Object.assign(document.createElement('td'), { colSpan: 99 }));
      return element;
    };
    const head = [...body.children].filter((element) => element.tagName === 'TR'), above = spacer(), below = spacer();
    const height = (element, rows) => { (element.firstChild || element).style.height = `${rows * ROW}px`; };
    const show = () => {
      if (root.classList.contains('printing')) return;
      const first = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW) - 10, count - 40)), end = Math.min(count, first + 60);
      height(above, first);
      height(below, count - end);
      body.replaceChildren(...head, above, ...Array.from({ length: end - first }, (_, at) => row(first + at)), below);
    };
    box.addEventListener('scroll', () => requestAnimationFrame(show));
    addEventListener('beforeprint', () => body.replaceChildren(...head, ...Array.from({ length: count }, (_, at) => row(at))));
    addEventListener('afterprint', show);
    show();
  };
  const lists = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      lists.unobserve(target);
      const template = target.querySelector('template.long'), rows = [...template.content.children];
      windowed(target, template.parentElement, rows.length, (at) => rows[at]);
    }
  }, { rootMargin: '300px' });
  for (const template of document.querySelectorAll('template.long')) lists.observe(template.closest('.scroll'));

  // --- figures -------------------------------------------------------------------------------------------------------
  // Names at the ends of lines: each at least a line of text below the one above it.
  const spread = (chart) => {
    const option = chart.getOption(), places = new Map();
    option.series.forEach((each, index) => {
      const last = each.endLabel?.show && each.data.findLast((point) => point[1] !== null);
      if (!last) return;
      const y = chart.convertToPixel({ xAxisIndex: each.xAxisIndex, yAxisIndex: each.yAxisIndex }, last)[1];
      if (!places.has(each.yAxisIndex)) places.set(each.yAxisIndex, []);
      places.get(each.yAxisIndex).push({ index, y });
    });
    const series = option.series.map(() => ({}));
    for (const found of places.values()) {
      found.sort((a, b) => a.y - b.y);
      let before = -Infinity;
      for (const each of found) {
        const y = Math.max(each.y, before + 13);
        series[each.index] = { endLabel: { offset: [0, y - each.y] } };
        before = y;
      }
    }
    chart.setOption({ series });
  };
  const draw = (figure) => {
    const known = figures.get(figure), { spec, box } = known, kind = KINDS[spec.kind], width = box.clientWidth;
    if (!width) return;
    box.style.height = `${Math.round(kind.height(spec, width))}px`;
    known.chart?.dispose();
    known.chart = echarts.init(box, null, { renderer: kind.canvas(spec) ? 'canvas' : 'svg' });
    known.chart.setOption(kind.option(spec, width, known.off));
    if (spec.kind === 'xy') spread(known.chart);
    known.width = width;
    figure.dataset.drawn = known.chart.getOption().series.reduce((sum, each) => sum + (each.data?.length || 0), 0);
  };
  const drawAll = () => { for (const figure of figures.keys()) draw(figure); };
  const redraw = () => { for (const [figure, known] of figures) if (known.chart) draw(figure); };

  const stepped = (known, by) => {
    const option = known.chart.getOption(), at = option.series.findIndex((each) => each.data?.length && each.type !== 'custom');
    const index = at < 0 ? option.series.findIndex((each) => each.data?.length) : at;
    if (index < 0) return;
    const last = option.series[index].data.length - 1;
    known.at = Math.max(0, Math.min(last, (known.at ?? (by > 0 ? -1 : last + 1)) + by));
    known.chart.dispatchAction({ type: 'showTip', seriesIndex: index, dataIndex: known.at });
    const value = option.series[index].data[known.at], numbers = Array.isArray(value) ? value : [value?.value ?? value];
    known.live.textContent = `${option.series[index].name || ''} ${numbers.map(exact).join(', ')}`;
  };
  const switches = (figure, known) => {
    const row = document.createElement('p');
    row.className = 'switches';
    known.spec.kinds.forEach((name, kind) => {
      const label = document.createElement('label'), box = document.createElement('input'), swatch = document.createElement('span');
      box.type = 'checkbox';
      box.checked = true;
      box.addEventListener('change', () => { known.off[box.checked ? 'delete' : 'add'](kind); draw(figure); });
      swatch.className = `swatch c${kind % 8}`;
      label.append(box, swatch, name);
      row.append(label);
    });
    known.box.before(row);
  };
  const prepare = (figure, width) => {
    const spec = JSON.parse(figure.querySelector('script').textContent), box = figure.querySelector('.plot');
    const known = { spec, box, off: new Set(), live: figure.querySelector('.live') };
    figures.set(figure, known);
    box.style.height = `${Math.round(KINDS[spec.kind].height(spec, width || 600))}px`;
    if (spec.kind === 'spans') switches(figure, known);
    box.addEventListener('keydown', (event) => {
      if (!known.chart || (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight')) return;
      event.preventDefault();
      stepped(known, event.key === 'ArrowRight' ? 1 : -1);
    });
    const details = figure.querySelector('details');
    details.addEventListener('toggle', () => {
      const table = details.querySelector('.numbers');
      if (details.open && !table.firstChild) filled(table, TABLES[spec.kind](spec));
    });
  };

  // All widths are read before anything is changed: each reading after a change would lay the page out again.
  const unprepared = [...document.querySelectorAll('figure.chart')], widths = unprepared.map((figure) => figure.querySelector('.plot').clientWidth);
  unprepared.forEach((figure, at) => prepare(figure, widths[at]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && !figures.get(entry.target).chart) draw(entry.target);
  }, { rootMargin: '300px' });
  for (const figure of figures.keys()) seen.observe(figure);
  const resized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const figure = entry.target.parentNode, known = figures.get(figure);
      if (known.chart && Math.abs(known.width - known.box.clientWidth) > 1) draw(figure);
    }
  });
  for (const known of figures.values()) resized.observe(known.box);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
  addEventListener('beforeprint', () => { root.classList.add('printing'); drawAll(); });
  addEventListener('afterprint', () => { root.classList.remove('printing'); redraw(); });
  // A closed part has no width: its charts are drawn when it opens.
  document.addEventListener('toggle', (event) => {
    for (const figure of event.target.querySelectorAll?.('figure.chart') || []) if (event.target.open) draw(figure);
  }, true);
  root.dataset.charts = figures.size;
})();
