// The parts of ECharts that the pages draw with. `npm ci && npm run build` makes echarts.js of them.
import { use, init } from 'echarts/core';
import { BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart } from 'echarts/charts';
import {
  DataZoomInsideComponent, DataZoomSliderComponent, GridComponent, MarkAreaComponent, MarkLineComponent,
  TooltipComponent, VisualMapContinuousComponent,
} from 'echarts/components';
import { CanvasRenderer, SVGRenderer } from 'echarts/renderers';

use([
  BarChart, CustomChart, HeatmapChart, LineChart, ScatterChart, DataZoomInsideComponent, DataZoomSliderComponent,
  GridComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent, CanvasRenderer,
  SVGRenderer,
]);
export { init };
