<<<<<<<< HEAD:internal/admin/console/dist/assets/jobs-xkYzLRlw.js
import{h as e}from"./index-mZf3KOq5.js";function t(e){return e.state===`done`||e.state===`canceled`}function n(e){return{waiting:`Waiting`,running:`Running`,canceling:`Stopping`,canceled:`Stopped`,done:`Done`}[e.state]}function r(e){return e.state===`done`?e.failed>0?`warn`:`good`:e.state===`canceled`?`neutral`:`info`}function i(t){return e(t.filter)}export{n as i,i as n,r,t};
========
import{g as e}from"./index-DXi_0wZe.js";function t(e){return e.state===`done`||e.state===`canceled`}function n(e){return{waiting:`Waiting`,running:`Running`,canceling:`Stopping`,canceled:`Stopped`,done:`Done`}[e.state]}function r(e){return e.state===`done`?e.failed>0?`warn`:`good`:e.state===`canceled`?`neutral`:`info`}function i(t){return e(t.filter)}export{n as i,i as n,r,t};
>>>>>>>> 366e1685 (Say in one line what a task does or waits for, and judge agents by evidence):internal/admin/console/dist/assets/jobs-BVHaGN5V.js
